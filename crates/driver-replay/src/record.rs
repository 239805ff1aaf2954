//! What a replay found. Every consumer shows it as `source: "replay"`: what the entry does under these
//! stubs, evidence rather than proof.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, Guid, HexBytes};

/// How far a replay got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    /// The entry returned.
    Complete,
    /// It stopped on the way: what is listed was seen before that.
    Partial,
    /// There is no entry point, or nothing of it could be run.
    NotRun,
}

/// Which call an object was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Entry,
    /// `AddDevice` or `EvtDriverDeviceAdd`, called after the entry with made-up objects.
    DeviceAdd,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Returned status; absent when it did not return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Code>,
    pub instructions: u64,
    pub stub_calls: u32,
    /// The import whose result was changed for this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<StoppedAt>,
    /// This attempt's findings are the result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
}

/// Where and why the interpreter stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoppedAt {
    pub address: Address,
    pub reason: String,
}

/// A device the driver made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub device_type: Code,
    pub characteristics: Code,
    pub exclusive: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sddl: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_guid: Option<Guid>,
    /// A self-relative descriptor set on the device afterwards (`ZwSetSecurityObject`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_descriptor: Option<HexBytes>,
    /// The driver deleted it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    pub from: Phase,
}

/// A symbolic link the driver made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    pub path: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    pub from: Phase,
}

/// A routine the driver registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Callback {
    /// The registering routine, and where it takes several, which: `PsSetCreateProcessNotifyRoutine`,
    /// `FltRegisterFilter pre 0x0e`.
    pub kind: String,
    pub address: Address,
    pub from: Phase,
}

/// What a KMDF client binds to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bind {
    /// `WDF_BIND_INFO`.
    pub address: Address,
    /// `1.9.7600`
    pub version: String,
    pub function_count: u32,
    /// The array of functions, or the variable that points to it.
    pub function_table: Address,
    /// `function_table` is a variable that gets the array's address.
    pub table_is_pointer: bool,
}

/// `WDF_DRIVER_CONFIG`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_add: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unload: Option<Address>,
    /// `WDF_DRIVER_INIT_FLAGS`: 1 non-PnP, 2 the client keeps its own dispatch table.
    pub flags: Code,
}

/// A queue the client made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    pub dispatch_type: DispatchType,
    pub default: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_default: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_control: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_device_control: Option<Address>,
    pub from: Phase,
}

/// `WDF_IO_QUEUE_DISPATCH_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DispatchType {
    Sequential,
    Parallel,
    Manual,
    Other,
}

/// A callback that sees requests of one major function first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Preprocess {
    pub major: u8,
    pub address: Address,
}

/// What a client told the framework.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FrameworkCalls {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Bind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_config: Option<DriverConfig>,
    /// `WdfDeviceInit...` calls in order, by name.
    pub device_init: Vec<String>,
    pub queues: Vec<Queue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_caller_context: Option<Address>,
    pub preprocess: Vec<Preprocess>,
}

/// `FAST_IO_DISPATCH` as the driver installed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FastIo {
    pub table: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_control: Option<Address>,
}

/// The result of [`crate::replay`]. Addresses are at the base the image was placed at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
    pub status: ReplayStatus,
    pub runs: Vec<Run>,
    /// `MajorFunction`, an entry for each; absent inside where it was left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Vec<Option<Address>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unload: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_io: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_device: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_io: Option<FastIo>,
    pub devices: Vec<Device>,
    pub links: Vec<Link>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<FrameworkCalls>,
    pub callbacks: Vec<Callback>,
    /// Names given to `MmGetSystemRoutineAddress`.
    pub dynamic_imports: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<StoppedAt>,
}
