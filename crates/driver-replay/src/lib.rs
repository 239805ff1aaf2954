//! DriverEntry run against stubbed imports: dispatch table, devices, links, KMDF queues.
