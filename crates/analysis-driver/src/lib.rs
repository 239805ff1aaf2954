//! Driver, device and request objects, the object namespace, security descriptors, hazards, the surface.
