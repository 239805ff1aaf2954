//! Objects of a driver nobody loaded: what its DriverEntry does under stubs, as the records a live
//! target gives (spec 40 section 10).

use std::rc::Rc;

use code_flow::{CodeLocation, SectionState};
use driver_replay::{Device, Link, PlacedImage, Replay, ReplayStatus, placed, replay_cached};
use target::{Address, Code, Halt, Module, RegionMemory, Result, Target, TargetError, TargetKind};

use crate::access::access_model;
use crate::descriptor::Descriptor;
use crate::device_types::device_type_name;
use crate::driver::{
    DeviceChain, DispatchEntry, DispatchTable, DriverImage, DriverObject, HandlerGroup, HandlerKind,
    ObjectSource,
};
use crate::failure::because;
use crate::layout::LayoutSource;
use crate::locations::Locations;
use crate::names::{self, DEVICE_CONTROL, INTERNAL_DEVICE_CONTROL, major_name};
use crate::namespace::same_path;
use crate::sddl::parse_sddl;
use crate::security::{AbsenceKind, DeviceLink, DeviceSecurity, LinkSearch, SecurityAbsent, SecurityRequest};

/// Links followed from one to its device.
const MAX_HOPS: u8 = 8;

/// The image of an image session and its replay.
pub struct Offline {
    pub module: Module,
    pub image: PlacedImage,
    pub replay: Rc<Replay>,
}

/// Whether the target is an image nobody loaded.
#[must_use]
pub fn is_offline(target: &dyn Target) -> bool {
    target.facts().kind == TargetKind::Image
}

impl Offline {
    /// The session's image, replayed once.
    ///
    /// # Errors
    /// `not_found`: the session has no module, or no driver's code is in it.
    pub fn of(target: &dyn Target, halt: &Halt) -> Result<Self> {
        let modules = target.modules()?;
        let module =
            modules.first().cloned().ok_or_else(|| because("not_found", "the session has no image"))?;
        let image = placed(target, &module).ok_or_else(|| {
            TargetError::unsupported(
                "unsupported_target",
                format!(
                    "the entry of {} cannot be replayed: x86, x64 and ARM64 images up to 64 MiB are",
                    module.image_name
                ),
            )
        })?;
        let replay = replay_cached(&image, halt);
        Ok(Self { module, image, replay })
    }

    /// Whether an operand means this image: empty, its name, or an address in it.
    ///
    /// # Errors
    /// `not_found`: it names another driver.
    pub fn must_be(&self, text: &str) -> Result<()> {
        let text = text.trim();
        let bare = text.rsplit('\\').next().unwrap_or(text);
        let module = &self.module;
        let named = [&module.name, &module.image_name].iter().any(|name| name.eq_ignore_ascii_case(bare));
        let digits = text.trim_start_matches("0x").replace('`', "");
        let inside = u64::from_str_radix(&digits, 16).is_ok_and(|address| module.contains(address));
        if text.is_empty() || named || inside {
            return Ok(());
        }
        Err(because(
            "not_found",
            format!("the session's only driver is {} ({}), not {text}", module.name, module.image_name),
        ))
    }

    /// What a reader must know of everything the replay says.
    #[must_use]
    pub fn caveat(&self) -> Option<String> {
        let stopped = self.replay.stopped_at.as_ref().map(|at| format!("{} at {}", at.reason, at.address));
        match self.replay.status {
            ReplayStatus::Complete => None,
            ReplayStatus::Partial => Some(format!(
                "DriverEntry was not replayed to its end ({}): what it does after that is unknown",
                stopped.unwrap_or_else(|| "no reason given".to_owned())
            )),
            ReplayStatus::NotRun => {
                Some("DriverEntry was not replayed: there is none, or nothing of it runs".to_owned())
            }
        }
    }

    fn devices(&self) -> impl Iterator<Item = &Device> {
        self.replay.devices.iter().filter(|device| !device.deleted)
    }

    /// The driver object DriverEntry leaves behind.
    #[must_use]
    pub fn driver(&self, target: &dyn Target, with_devices: bool) -> DriverObject {
        let mut locations = Locations::new(target);
        locations.note(&self.module);
        let dispatch = self.dispatch(&mut locations);
        let mut at = |address: Option<Address>| address.map(|address| locations.at(address.0));
        let (unload, start_io, add_device) =
            (at(self.replay.unload), at(self.replay.start_io), at(self.replay.add_device));
        let entry = u64::from(self.image.pe.entry_point);
        let init = (entry != 0).then(|| locations.at(self.module.base.wrapping_add(entry)));
        let count = self.devices().count() as u64;
        DriverObject {
            address: None,
            path: None,
            name: None,
            layout_source: LayoutSource::Abi,
            layout_mismatch: Vec::new(),
            type_field_unexpected: false,
            flags: Code(0),
            flag_names: Vec::new(),
            image: DriverImage {
                base: Address(self.module.base),
                size: self.module.size,
                module: Some(self.module.name.clone()),
            },
            init,
            start_io,
            unload,
            fast_io: self.replay.fast_io.as_ref().map(|table| table.table),
            add_device,
            dispatch,
            framework: self.replay.framework.as_ref().map(|_| "kmdf".to_owned()),
            devices: with_devices.then(|| DeviceChain {
                status: if self.replay.status == ReplayStatus::Complete {
                    SectionState::Ok
                } else {
                    SectionState::Partial
                },
                addresses: Vec::new(),
                names: self
                    .devices()
                    .filter_map(|device| names::printable(device.name.as_deref()?))
                    .collect(),
                device_count: count,
                stopped: None,
            }),
            source: ObjectSource::Replay,
            images: locations.images(),
        }
    }

    fn dispatch(&self, locations: &mut Locations<'_>) -> DispatchTable {
        let table = self.replay.dispatch.clone().unwrap_or_default();
        let mut entries = Vec::new();
        let mut groups: Vec<HandlerGroup> = Vec::new();
        for (index, handler) in (0u8..).zip(table) {
            let kind = match handler {
                None => HandlerKind::Unset,
                Some(address) if self.image.contains(address.0) => HandlerKind::Own,
                Some(_) => HandlerKind::OtherModule,
            };
            if let Some(address) = handler {
                match groups.iter_mut().find(|group| group.handler == address) {
                    Some(group) => group.majors.push(index),
                    None => groups.push(HandlerGroup {
                        handler: address,
                        majors: vec![index],
                        owned: kind == HandlerKind::Own,
                    }),
                }
            }
            let handler = handler.map(|address| locations.at(address.0));
            entries.push(DispatchEntry { index, name: major_name(index), handler, kind });
        }
        let of = |major: u8| -> Option<CodeLocation> {
            entries.iter().find(|entry| entry.index == major).and_then(|entry| entry.handler.clone())
        };
        DispatchTable {
            status: match self.replay.status {
                ReplayStatus::Complete => SectionState::Ok,
                ReplayStatus::Partial => SectionState::Partial,
                ReplayStatus::NotRun => SectionState::Unavailable,
            },
            note: self.caveat(),
            major_count: entries.len() as u64,
            device_control: of(DEVICE_CONTROL),
            internal_device_control: of(INTERNAL_DEVICE_CONTROL),
            entries,
            groups,
            basis: None,
        }
    }

    /// The device an operand means: by its name, by a link to it, or the only one.
    fn device(&self, text: &str) -> Result<&Device> {
        let text = text.trim();
        let named =
            |device: &&Device, path: &str| device.name.as_deref().is_some_and(|name| same_path(name, path));
        let paths = [text.to_owned(), format!("\\Device\\{text}")];
        let found = paths.iter().find_map(|path| self.devices().find(|device| named(device, path)));
        let found = found.or_else(|| {
            let link = self.replay.links.iter().find(|link| same_path(&link.path, text))?;
            self.devices().find(|device| device.name.as_deref().is_some_and(|d| self.hops(link, d).is_some()))
        });
        found.ok_or_else(|| {
            let have: Vec<&str> =
                self.devices().map(|device| device.name.as_deref().unwrap_or("(unnamed)")).collect();
            let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
            let caveat = self.caveat().map(|caveat| format!("; {caveat}")).unwrap_or_default();
            because("not_found", format!("DriverEntry makes no device {text}; it makes {have}{caveat}"))
        })
    }

    /// How many links lead from `link` to the device named `device`, itself counted. A link's target
    /// may be another link.
    fn hops(&self, link: &Link, device: &str) -> Option<u8> {
        let stands = |link: &&Link| !link.deleted;
        let mut at = Some(link).filter(stands)?;
        for hops in 1..=MAX_HOPS {
            if same_path(device, &at.target) {
                return Some(hops);
            }
            at = self.replay.links.iter().filter(stands).find(|next| same_path(&next.path, &at.target))?;
        }
        None
    }

    /// Who may open a device the driver makes.
    ///
    /// # Errors
    /// `not_found`: the replay shows no such device.
    pub fn security(&self, request: &SecurityRequest<'_>) -> Result<DeviceSecurity> {
        let device = self.device(request.device)?;
        Ok(self.gate(device, request.model, request.links))
    }

    /// The gates of every device, in the order they are made.
    #[must_use]
    pub fn gates(&self, model: bool) -> Vec<DeviceSecurity> {
        self.devices().map(|device| self.gate(device, model, true)).collect()
    }

    fn gate(&self, device: &Device, model: bool, links: bool) -> DeviceSecurity {
        let (security, security_absent) = descriptor(device);
        let name = device.name.clone().unwrap_or_else(|| "(unnamed device)".to_owned());
        let links: Vec<DeviceLink> = self
            .replay
            .links
            .iter()
            .filter(|_| links)
            .filter_map(|link| {
                let hops = self.hops(link, device.name.as_deref()?)?;
                let (path, target) = (link.path.clone(), link.target.clone());
                Some(DeviceLink { path, target, hops, exact_name: true })
            })
            .collect();
        DeviceSecurity {
            device: name,
            followed_links: Vec::new(),
            address: None,
            driver: None,
            device_type: device.device_type,
            characteristics: device.characteristics,
            secure_open: device.characteristics.0 & names::SECURE_OPEN != 0,
            flags: None,
            exclusive: device.exclusive,
            access_model: security.as_ref().filter(|_| model).map(access_model),
            security,
            security_absent,
            link_search: LinkSearch::Skipped,
            link_note: Some("These are the links the driver makes itself:".to_owned()),
            links,
            links_examined: None,
            links_unnamed: 0,
            links_unread: 0,
            cap_hit: false,
        }
    }

    /// The device an operand means, as a device object: what it was created with.
    ///
    /// # Errors
    /// `not_found`: the replay shows no such device.
    pub fn describe_device(&self, text: &str) -> Result<crate::device::DeviceObject> {
        let device = self.device(text)?;
        Ok(crate::device::DeviceObject {
            address: None,
            path: device.name.clone(),
            followed_links: Vec::new(),
            driver: crate::device::DriverRef {
                address: None,
                name: None,
                module: Some(self.module.name.clone()),
            },
            device_type: device.device_type,
            device_type_name: device_type_name(device.device_type.0).map(ToOwned::to_owned),
            characteristics: device.characteristics,
            characteristic_names: names::characteristics(device.characteristics.0),
            secure_open: device.characteristics.0 & names::SECURE_OPEN != 0,
            flags: Code(if device.exclusive { names::DO_EXCLUSIVE } else { 0 }),
            flag_names: names::device_flags(if device.exclusive { names::DO_EXCLUSIVE } else { 0 }),
            exclusive: device.exclusive,
            stack_size: 1,
            reference_count: 0,
            type_field_unexpected: false,
            extension: None,
            vpb: None,
            current_irp: None,
            security_descriptor: None,
            stack: Vec::new(),
            stack_note: Some(
                "reconstructed from what DriverEntry creates it with; it has no live fields".to_owned(),
            ),
            layout_source: LayoutSource::Abi,
            layout_mismatch: Vec::new(),
        })
    }
}

/// The descriptor a device was given: set on it afterwards, or by SDDL when it was made.
fn descriptor(device: &Device) -> (Option<Descriptor>, Option<SecurityAbsent>) {
    let failed =
        |reason: String| (None, Some(SecurityAbsent { kind: AbsenceKind::Failed, reason, address: None }));
    if let Some(bytes) = &device.security_descriptor {
        let mut memory = RegionMemory::new();
        memory.add(0x1000, bytes.0.clone());
        return match Descriptor::read(&memory, 0x1000) {
            Ok(mut descriptor) => {
                descriptor.address = None;
                (Some(descriptor), None)
            }
            Err(error) => failed(error.to_string()),
        };
    }
    match &device.sddl {
        Some(text) => match parse_sddl(text) {
            Ok(descriptor) => (Some(descriptor), None),
            Err(error) => failed(format!("{error}: {text}")),
        },
        None => {
            let reason = "created without a descriptor argument; the system default for its type applies, not evaluated";
            (None, Some(SecurityAbsent { kind: AbsenceKind::None, reason: reason.to_owned(), address: None }))
        }
    }
}
