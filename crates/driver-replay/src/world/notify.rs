//! Routines a driver registers.

use super::{Answer, World};

/// Most operations of a filter registration.
const MAX_OPERATIONS: u64 = 128;

impl World {
    pub(crate) fn notify_call(&mut self, name: &str) -> Option<Answer> {
        // Index of the routine among the arguments, and of where an object or handle is written.
        let (routine, out) = match name {
            "PsSetCreateProcessNotifyRoutine"
            | "PsSetCreateProcessNotifyRoutineEx"
            | "PsSetCreateThreadNotifyRoutine"
            | "PsSetLoadImageNotifyRoutine"
            | "PsSetLoadImageNotifyRoutineEx" => (0, None),
            "PsSetCreateProcessNotifyRoutineEx2" | "PsSetCreateThreadNotifyRoutineEx" => (1, None),
            "CmRegisterCallback" => (0, Some(2)),
            "CmRegisterCallbackEx" => (0, Some(4)),
            "ExRegisterCallback"
            | "KeInitializeDpc"
            | "KeInitializeThreadedDpc"
            | "IoInitializeTimer"
            | "IoQueueWorkItem"
            | "IoQueueWorkItemEx"
            | "IoRegisterDriverReinitialization"
            | "IoRegisterBootDriverReinitialization"
            | "IoRegisterFsRegistrationChange"
            | "KeRegisterBugCheckCallback"
            | "KeRegisterBugCheckReasonCallback" => (1, None),
            "KeRegisterNmiCallback" | "KeRegisterProcessorChangeCallback" => (0, None),
            "IoRegisterPlugPlayNotification" => (4, Some(6)),
            "PoRegisterPowerSettingCallback" => (2, Some(4)),
            "PsCreateSystemThread" => (5, Some(0)),
            "IoConnectInterrupt" => (1, Some(0)),
            "EtwRegister" => (1, Some(3)),
            "SeRegisterLogonSessionTerminatedRoutine" => (0, None),
            "ObRegisterCallbacks" => {
                let (registration, out) = (self.argument(0), self.argument(1));
                self.object_callbacks(registration);
                let thing = self.objects.thing;
                self.write_pointer(out, thing);
                return Some(Answer::Value(0));
            }
            "FltRegisterFilter" => {
                let (registration, out) = (self.argument(1), self.argument(2));
                self.filter(registration);
                let thing = self.objects.thing;
                self.write_pointer(out, thing);
                return Some(Answer::Value(0));
            }
            _ => return None,
        };
        let address = self.argument(routine);
        self.callback(name, address);
        if let Some(index) = out {
            let (at, thing) = (self.argument(index), self.objects.thing);
            let value = if name == "PsCreateSystemThread" { self.new_handle(thing) } else { thing };
            self.write_pointer(at, value);
        }
        // A registered callback object or timer: `ExRegisterCallback` gives a pointer, the rest success.
        let returned = match name {
            "ExRegisterCallback" | "KeRegisterNmiCallback" | "KeRegisterProcessorChangeCallback" => {
                self.objects.thing
            }
            "KeRegisterBugCheckCallback" | "KeRegisterBugCheckReasonCallback" => 1,
            _ => 0,
        };
        Some(Answer::Value(returned))
    }

    /// `OB_CALLBACK_REGISTRATION`.
    fn object_callbacks(&mut self, at: u64) {
        let count = self.read(at.wrapping_add(2), 2).min(64);
        let operations = at.wrapping_add(self.either(0x20, 0x10));
        let operations = self.read_pointer(operations);
        let (stride, pointer) = (self.either(0x20, 0x10), u64::from(self.pointer()));
        for index in 0..count {
            let operation = operations.wrapping_add(index * stride);
            for (kind, offset) in [("pre", 2 * pointer), ("post", 3 * pointer)] {
                let routine = self.read_pointer(operation.wrapping_add(offset));
                self.callback(format!("ObRegisterCallbacks {kind}"), routine);
            }
        }
    }

    /// `FLT_REGISTRATION` and its operations.
    fn filter(&mut self, at: u64) {
        let (pointer, stride) = (u64::from(self.pointer()), self.either(0x20, 0x14));
        let operations = at.wrapping_add(self.either(0x10, 0x0c));
        let operations = self.read_pointer(operations);
        let unload = at.wrapping_add(self.either(0x18, 0x10));
        let unload = self.read_pointer(unload);
        self.callback("FltRegisterFilter unload", unload);
        for index in 0..MAX_OPERATIONS {
            let operation = operations.wrapping_add(index * stride);
            let major = self.read(operation, 1);
            // IRP_MJ_OPERATION_END
            if operations == 0 || major == 0x80 || self.emulator.memory.read(operation, 1).is_err() {
                break;
            }
            for (kind, offset) in [("pre", 8), ("post", 8 + pointer)] {
                let routine = self.read_pointer(operation.wrapping_add(offset));
                self.callback(format!("FltRegisterFilter {kind} {major:#04x}"), routine);
            }
        }
    }
}
