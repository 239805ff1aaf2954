//! Memory, versions, objects, processor state.

use super::{Answer, MAX_FINDINGS, World};

impl World {
    pub(crate) fn runtime_call(&mut self, name: &str) -> Option<Answer> {
        let value = match name {
            "ExAllocatePool"
            | "ExAllocatePoolWithTag"
            | "ExAllocatePoolWithQuota"
            | "ExAllocatePoolWithQuotaTag"
            | "ExAllocatePoolWithTagPriority"
            | "ExAllocatePoolZero"
            | "ExAllocatePoolQuotaZero"
            | "ExAllocatePoolPriorityZero" => {
                let size = self.argument(1);
                self.allocate(size)
            }
            "ExAllocatePool2" | "ExAllocatePool3" => {
                // 64-bit flags take two slots on x86.
                let size = if self.narrow() { self.argument(2) } else { self.argument(1) };
                self.allocate(size)
            }
            "MmAllocateContiguousMemory"
            | "MmAllocateContiguousMemorySpecifyCache"
            | "MmAllocateContiguousMemorySpecifyCacheNode"
            | "MmAllocateContiguousNodeMemory"
            | "MmAllocateNonCachedMemory" => {
                let size = self.argument(0);
                self.allocate(size)
            }
            "IoAllocateMdl"
            | "MmAllocatePagesForMdl"
            | "MmAllocatePagesForMdlEx"
            | "MmCreateMdl"
            | "MmMapLockedPages"
            | "MmMapLockedPagesSpecifyCache"
            | "MmMapIoSpace"
            | "MmMapIoSpaceEx"
            | "IoAllocateIrp"
            | "IoAllocateWorkItem"
            | "ExAllocateTimer"
            | "IoAllocateErrorLogEntry"
            | "ExAllocateFromNPagedLookasideList"
            | "ExAllocateFromPagedLookasideList" => self.allocate(0x1000),
            "RtlGetVersion" => self.version(),
            "PsGetVersion" => {
                for (index, value) in [(0, 10), (1, 0), (2, 19045)] {
                    let out = self.argument(index);
                    if out != 0 {
                        self.write(out, 4, value);
                    }
                }
                0
            }
            "RtlIsNtDdiVersionAvailable" | "IoIsWdmVersionAvailable" => 1,
            "MmGetSystemRoutineAddress" | "FltGetRoutineAddress" | "NdisGetRoutineAddress" => {
                self.dynamic_import()
            }
            "PsGetCurrentProcess"
            | "IoGetCurrentProcess"
            | "KeGetCurrentThread"
            | "PsGetCurrentThread"
            | "PsGetCurrentProcessId"
            | "PsGetCurrentThreadId" => self.objects.thing,
            "KeQueryPerformanceCounter" | "KeQueryInterruptTime" | "KeQueryUnbiasedInterruptTime" => 0x12345,
            "KeQueryActiveProcessors"
            | "KeQueryActiveProcessorCount"
            | "KeQueryActiveProcessorCountEx"
            | "KeQueryMaximumProcessorCount"
            | "KeQueryMaximumProcessorCountEx" => 1,
            "MmIsAddressValid" => {
                let at = self.argument(0);
                u64::from(self.emulator.memory.is_mapped(at))
            }
            "KeBugCheck" | "KeBugCheckEx" => return Some(Answer::End("KeBugCheckEx was called")),
            "RtlFailFast" | "__fastfail" | "__report_gsfailure" => {
                return Some(Answer::End("a fail-fast routine was called"));
            }
            "ExRaiseStatus"
            | "RtlRaiseStatus"
            | "ExRaiseAccessViolation"
            | "RtlRaiseException"
            | "ExRaiseDatatypeMisalignment" => return Some(Answer::End("an exception was raised")),
            "_purecall" | "RtlAssert" | "DbgBreakPoint" => return Some(Answer::End("an assertion failed")),
            "PsTerminateSystemThread" => return Some(Answer::End("the thread ended itself")),
            "ZwClose"
            | "ObfDereferenceObject"
            | "ExFreePool"
            | "ExFreePoolWithTag"
            | "DbgPrint"
            | "DbgPrintEx"
            | "KeInitializeEvent"
            | "KeInitializeSpinLock"
            | "KeInitializeMutex"
            | "IofCompleteRequest"
            | "RtlFreeUnicodeString" => 0,
            _ => return self.arithmetic_call(name),
        };
        Some(Answer::Value(value))
    }

    /// 64-bit arithmetic that x86 code imports from the kernel; operands on the stack, edx:eax back.
    fn arithmetic_call(&mut self, name: &str) -> Option<Answer> {
        if !self.narrow() {
            return None;
        }
        let word = |world: &mut Self, index| world.argument(index) & 0xffff_ffff;
        let a = word(self, 0) | word(self, 1) << 32;
        let b = word(self, 2) | word(self, 3) << 32;
        let result = match name {
            "_allmul" => a.wrapping_mul(b),
            "_aulldiv" => a.checked_div(b)?,
            "_aullrem" => a.checked_rem(b)?,
            "_alldiv" => (a as i64).checked_div(b as i64)? as u64,
            "_allrem" => (a as i64).checked_rem(b as i64)? as u64,
            _ => return None,
        };
        // The high half has no way back through a stub: only small results are right.
        Some(Answer::Value(result & 0xffff_ffff))
    }

    /// `RTL_OSVERSIONINFOW`.
    fn version(&mut self) -> u64 {
        let at = self.argument(0);
        for (offset, value) in [(4, 10), (8, 0), (12, 19045), (16, 2)] {
            self.write(at.wrapping_add(offset), 4, value);
        }
        0
    }

    fn dynamic_import(&mut self) -> u64 {
        let at = self.argument(0);
        let Some(name) = self.unicode_string(at).filter(|n| !n.is_empty() && n.len() < 256) else { return 0 };
        if !self.found.dynamic_imports.contains(&name) && self.found.dynamic_imports.len() < MAX_FINDINGS {
            self.found.dynamic_imports.push(name.clone());
        }
        match self.variable(&name) {
            Some(variable) => variable,
            None => self.routine(&name),
        }
    }

    /// The cell of an exported variable; `None` for a routine.
    pub(crate) fn variable(&mut self, name: &str) -> Option<u64> {
        let pointer = self.pointer();
        let thing = self.objects.thing;
        let value = match name {
            "NtBuildNumber" => 0xf000_0000 | 19045,
            "KdDebuggerEnabled" | "InitSafeBootMode" | "NtGlobalFlag" => 0,
            "KdDebuggerNotPresent" | "KeNumberProcessors" => 1,
            "MmHighestUserAddress" => self.either(0x7fff_fffe_ffff, 0x7ffe_ffff),
            "MmUserProbeAddress" => self.either(0x7fff_ffff_0000, 0x7fff_0000),
            "MmSystemRangeStart" => self.either(0xffff_8000_0000_0000, 0x8000_0000),
            "IoFileObjectType"
            | "IoDriverObjectType"
            | "IoDeviceObjectType"
            | "PsProcessType"
            | "PsThreadType"
            | "ExEventObjectType"
            | "ExSemaphoreObjectType"
            | "MmSectionObjectType"
            | "PsInitialSystemProcess"
            | "SeTokenObjectType"
            | "TmTransactionObjectType"
            | "LpcPortObjectType"
            | "CmKeyObjectType"
            | "PsJobType"
            | "HalDispatchTable"
            | "HalPrivateDispatchTable"
            | "NlsMbCodePageTag"
            | "KeServiceDescriptorTable"
            | "FsRtlLegalAnsiCharacterArray" => thing,
            "SeExports" => self.exported_sids(),
            _ => return None,
        };
        let cell = self.allocate(16);
        self.write(cell, pointer, value);
        Some(cell)
    }
}
