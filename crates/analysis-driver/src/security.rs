//! Who may open a device: its descriptor, the access model, the links that lead to it (spec 40
//! section 9.10).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, Halt, Result, Target, TargetError};

use crate::access::{AccessModel, TokenKind, access_model};
use crate::descriptor::{DaclState, Descriptor};
use crate::device::{DeviceObject, DriverRef};
use crate::find::find_device;
use crate::namespace::{LinkTarget, Namespace, same_path};
use crate::offline::{Offline, is_offline};

/// Why there is no descriptor. The two are opposite answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AbsenceKind {
    /// The field is empty; what guards instead was not read.
    None,
    /// There is a descriptor, and it gave no answer.
    Failed,
}

/// The absence of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecurityAbsent {
    pub kind: AbsenceKind,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
}

/// How much of the link directories was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LinkSearch {
    Complete,
    Partial,
    Unavailable,
    Skipped,
}

/// A symbolic link that leads to the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceLink {
    pub path: String,
    pub target: String,
    pub hops: u8,
    pub exact_name: bool,
}

/// What `device_security` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSecurity {
    pub device: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed_links: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverRef>,
    pub device_type: Code,
    pub characteristics: Code,
    pub secure_open: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<Code>,
    pub exclusive: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_absent: Option<SecurityAbsent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_model: Option<AccessModel>,
    pub link_search: LinkSearch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_note: Option<String>,
    pub links: Vec<DeviceLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links_examined: Option<u64>,
    pub links_unnamed: u64,
    pub links_unread: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cap_hit: bool,
}

/// What to look at.
#[derive(Clone, Debug)]
pub struct SecurityRequest<'a> {
    pub device: &'a str,
    pub links: bool,
    pub link_directory: &'a str,
    pub all_sessions: bool,
    pub model: bool,
}

const MAX_ROWS: usize = 256;
const MAX_SESSIONS: usize = 64;

/// The descriptor of a device object: a plain pointer in the device, never the object header's.
pub(crate) fn descriptor_of(
    target: &dyn Target,
    device: &DeviceObject,
) -> (Option<Descriptor>, Option<SecurityAbsent>) {
    let Some(at) = device.security_descriptor else {
        let reason = "DEVICE_OBJECT.SecurityDescriptor is empty; what guards the device instead was not read";
        return (
            None,
            Some(SecurityAbsent { kind: AbsenceKind::None, reason: reason.to_owned(), address: None }),
        );
    };
    match Descriptor::read(target, at.0) {
        Ok(descriptor) => (Some(descriptor), None),
        Err(error) => {
            let reason = error.to_string();
            (None, Some(SecurityAbsent { kind: AbsenceKind::Failed, reason, address: Some(at) }))
        }
    }
}

/// Who may open the device.
///
/// # Errors
/// The device could not be identified or read; everything less is said in the answer.
pub fn device_security(
    target: &dyn Target,
    request: &SecurityRequest<'_>,
    halt: &Halt,
) -> Result<DeviceSecurity> {
    if is_offline(target) {
        return Offline::of(target, halt)?.security(request);
    }
    let device = find_device(target, request.device, false, halt)?;
    let (security, security_absent) = descriptor_of(target, &device);
    let mut out = DeviceSecurity {
        device: device.path.clone().or_else(|| device.address.map(|at| at.to_string())).unwrap_or_default(),
        followed_links: device.followed_links.clone(),
        address: device.address,
        driver: Some(device.driver.clone()),
        device_type: device.device_type,
        characteristics: device.characteristics,
        secure_open: device.secure_open,
        flags: Some(device.flags),
        exclusive: device.exclusive,
        access_model: security.as_ref().filter(|_| request.model).map(access_model),
        security,
        security_absent,
        link_search: LinkSearch::Skipped,
        link_note: None,
        links: Vec::new(),
        links_examined: None,
        links_unnamed: 0,
        links_unread: 0,
        cap_hit: false,
    };
    if request.links
        && let Err(error) = search_links(target, &device, request, &mut out, halt)
    {
        out.link_search = LinkSearch::Unavailable;
        out.link_note = Some(error.to_string());
    }
    Ok(out)
}

/// Every link in the directories whose target is the device: a partly failed search never takes
/// the gate's answer away.
fn search_links(
    target: &dyn Target,
    device: &DeviceObject,
    request: &SecurityRequest<'_>,
    out: &mut DeviceSecurity,
    halt: &Halt,
) -> Result<()> {
    let namespace = Namespace::new(target)?;
    let path = match &device.path {
        Some(path) => path.clone(),
        None => match namespace.name_of(device.address.unwrap_or_default().0)? {
            Some(name) if name.exact() => format!("\\Device\\{}", name.text()),
            _ => {
                out.link_search = LinkSearch::Complete;
                out.link_note = Some("the device has no name a link could give".to_owned());
                return Ok(());
            }
        },
    };
    let mut directories = vec![request.link_directory.to_owned()];
    let mut complete = true;
    if request.all_sessions {
        match session_directories(&namespace, halt) {
            Ok(found) => directories.extend(found),
            Err(error) => {
                complete = false;
                out.link_note = Some(format!("The sessions' own links were not searched: {error}."));
            }
        }
    }
    let mut examined = 0;
    for directory in &directories {
        let found = namespace.lookup(directory, true, halt)?;
        if !namespace.is_directory(found.object) {
            return Err(TargetError::failed_because(
                "untyped_component",
                format!("{directory} is not known to be a directory; only directories are listed"),
            ));
        }
        let listing = namespace.list(found.object, halt)?;
        complete &= listing.unread.is_none() && listing.stopped.is_none();
        for object in listing.objects {
            if halt.stop().is_some() {
                complete = false;
                break;
            }
            match namespace.type_of(object).as_deref() {
                Some("SymbolicLink") => {}
                Some(_) => continue,
                None => {
                    out.links_unread += 1;
                    continue;
                }
            }
            examined += 1;
            complete &= examine(&namespace, directory, object, &path, out, halt);
        }
    }
    out.links_examined = Some(examined);
    complete &= out.links_unread == 0 && out.links_unnamed == 0 && !out.cap_hit;
    out.link_search = if complete { LinkSearch::Complete } else { LinkSearch::Partial };
    Ok(())
}

fn session_directories(namespace: &Namespace<'_>, halt: &Halt) -> Result<Vec<String>> {
    let sessions = namespace.lookup("\\Sessions", true, halt)?;
    let listing = namespace.list(sessions.object, halt)?;
    let names = listing.objects.iter().filter_map(|object| namespace.name_of(*object).ok().flatten());
    Ok(names.take(MAX_SESSIONS).map(|name| format!("\\Sessions\\{}\\DosDevices", name.text())).collect())
}

/// Looks at one link; false when it could not be told where it leads.
fn examine(
    namespace: &Namespace<'_>,
    directory: &str,
    link: u64,
    device: &str,
    out: &mut DeviceSecurity,
    halt: &Halt,
) -> bool {
    let name = match namespace.name_of(link) {
        Ok(Some(name)) => name,
        Ok(None) => {
            out.links_unnamed += 1;
            return false;
        }
        Err(_) => {
            out.links_unread += 1;
            return false;
        }
    };
    let target = match namespace.link_target(link) {
        Ok(LinkTarget::Path(target)) => target,
        // A callback answers at run time: it cannot be said to lead here, nor not to.
        Ok(LinkTarget::Callback) => return true,
        Err(_) => {
            out.links_unread += 1;
            return false;
        }
    };
    let mut hops = 1;
    let text = target.text();
    let leads = if same_path(&text, device) {
        true
    } else {
        // The target may itself be a link.
        match namespace.lookup(&text, true, halt) {
            Ok(found) if !found.followed.is_empty() => {
                hops = u8::try_from(found.followed.len() + 1).unwrap_or(u8::MAX);
                same_path(&found.path, device)
            }
            _ => false,
        }
    };
    if leads {
        if out.links.len() >= MAX_ROWS {
            out.cap_hit = true;
            return false;
        }
        let path = format!("{directory}\\{}", name.text());
        out.links.push(DeviceLink { path, target: text, hops, exact_name: name.exact() && target.exact() });
    }
    true
}

/// The text half: the caveats come before the list they qualify.
#[must_use]
pub fn render_security(answer: &DeviceSecurity) -> String {
    let mut text = format!("Who may open {}", answer.device);
    if let Some(driver) = &answer.driver {
        text.push_str(&format!(" (driver {})", driver.name.as_deref().unwrap_or("unnamed")));
    }
    if !answer.secure_open {
        text.push_str("\nFILE_DEVICE_SECURE_OPEN is not set: the descriptor guards the device's own name, not paths beneath it.");
    }
    if answer.exclusive {
        text.push_str("\nExclusive: one handle at a time.");
    }
    if let Some(absent) = &answer.security_absent {
        let what = match absent.kind {
            AbsenceKind::None => "No descriptor",
            AbsenceKind::Failed => "There is a descriptor, and it gave no answer",
        };
        text.push_str(&format!("\n{what}: {}", absent.reason));
    }
    if let Some(security) = &answer.security {
        text.push_str(&render_descriptor(security));
    }
    if let Some(model) = &answer.access_model {
        for row in &model.tokens {
            let delivers: Vec<&str> = row.delivers.iter().map(|access| access.name()).collect();
            text.push_str(&format!(
                "\n{:<24} granted {}, reads {}, writes {}, {}",
                match row.token {
                    TokenKind::LowUser => "low_user (low integrity)",
                    token => token.name(),
                },
                row.granted,
                row.reads.name(),
                row.writes.name(),
                if delivers.is_empty() {
                    "may send no codes: it cannot open the device".to_owned()
                } else {
                    format!("may send codes of access {}", delivers.join(", "))
                }
            ));
        }
        text.push_str(&format!("\nAssuming: {}.", model.assumptions.join("; ")));
    }
    text.push_str(&render_links(answer));
    text
}

fn render_links(answer: &DeviceSecurity) -> String {
    let mut text = match answer.link_search {
        LinkSearch::Complete if answer.links.is_empty() => "\nNo link leads here.".to_owned(),
        LinkSearch::Complete => String::new(),
        LinkSearch::Partial => format!(
            "\nThe search for links is not whole: {} without a name, {} unread.",
            answer.links_unnamed, answer.links_unread
        ),
        LinkSearch::Unavailable => "\nLinks could not be searched.".to_owned(),
        LinkSearch::Skipped => "\nLinks were not searched.".to_owned(),
    };
    if let Some(note) = &answer.link_note {
        text.push_str(&format!(" {note}"));
    }
    for link in &answer.links {
        text.push_str(&format!("\nlink {} -> {}", link.path, link.target));
    }
    text
}

/// Owner, states and entries.
pub(crate) fn render_descriptor(descriptor: &Descriptor) -> String {
    let named = |sid: &Option<String>, account: &Option<String>| {
        account.clone().or_else(|| sid.clone()).unwrap_or_else(|| "none".to_owned())
    };
    let mut text = format!("\nowner {}", named(&descriptor.owner, &descriptor.owner_account));
    if let Some(label) = &descriptor.integrity {
        let level = label.name.clone().unwrap_or_else(|| label.level.to_string());
        text.push_str(&format!(", integrity {level} ({})", label.policy.join(" ")));
    }
    text.push_str(match descriptor.dacl_state {
        DaclState::Absent => "\nNo DACL: everyone may do everything.",
        DaclState::Null => "\nA null DACL: everyone may do everything.",
        DaclState::Empty => "\nAn empty DACL: nobody may do anything.",
        DaclState::Present => "",
    });
    for ace in descriptor.dacl.iter().flat_map(|acl| &acl.entries) {
        let kind = format!("{:?}", ace.kind).to_lowercase();
        let mut marks: Vec<String> = ace.flag_names.clone();
        if ace.conditional {
            marks.push("conditional".to_owned());
        }
        if !ace.applies {
            marks.push("does not apply".to_owned());
        }
        text.push_str(&format!(
            "\n{kind} {} {} {} {}",
            named(&ace.sid, &ace.account),
            ace.effective_mask.unwrap_or(ace.mask),
            ace.rights.join("|"),
            marks.join(" ")
        ));
        text.truncate(text.trim_end().len());
    }
    text
}
