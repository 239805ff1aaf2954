//! The bucket of a bug check: the grammar of spec 60 section 2.5.

use analysis_status::fast_fail_name;
use target::BugCheck;

use crate::bucket::symbol_part;
use crate::fault::{ACCESS_VIOLATION, Fault, exception_code};
use crate::leads::Leads;
use crate::result::{BucketForm, Operation};

/// Who is blamed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blame {
    pub(crate) module: Option<String>,
    pub(crate) image: Option<String>,
    pub(crate) function: Option<String>,
}

/// A bucket, the part of it before the symbol, and whether its form is a documented one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) id: String,
    pub(crate) class: String,
    pub(crate) form: BucketForm,
}

fn bucket(class: &str, separator: &str, rest: &str, form: BucketForm) -> Bucket {
    Bucket { id: format!("{class}{separator}{rest}"), class: class.to_owned(), form }
}

/// The bucket of `base`. `paged_ip`: the faulting address is the instruction pointer, in a module.
pub(crate) fn kernel_bucket(
    base: u32,
    bug: &BugCheck,
    blame: &Blame,
    leads: &Leads,
    paged_ip: bool,
) -> Bucket {
    let symbol = symbol_part(blame.module.as_deref(), blame.function.as_deref());
    let [p1, _, p3, p4] = bug.parameters;
    let known = BucketForm::Documented;
    let with = |class: &str| bucket(class, "_", &symbol, known);
    match base {
        0x0a | 0xd1 | 0x50 if paged_ip => with("AV_CODE_AV_PAGED_IP"),
        0x0a | 0xd1 | 0x50 => with("AV"),
        0x3b | 0x7e if exception_code(p1) == ACCESS_VIOLATION && paged_ip => with("AV_CODE_AV_PAGED_IP"),
        0x3b | 0x7e if exception_code(p1) == ACCESS_VIOLATION => with("AV"),
        0x1e => {
            let exception = exception_code(p1);
            let how = match (exception, p3) {
                (ACCESS_VIOLATION, 0) => "_R",
                (ACCESS_VIOLATION, 1) => "_W",
                (ACCESS_VIOLATION, 8) => "_X",
                _ => "",
            };
            with(&format!("0x1E_{exception:08x}{how}"))
        }
        0x139 => match fast_fail_name(p1) {
            Some(name) => with(&format!("0x139_{p1:x}_{name}")),
            None => bucket(&format!("0x139_{p1:x}"), "_", &symbol, BucketForm::Approximate),
        },
        0x13a => match (&blame.module, &leads.pool_tag) {
            (None, Some(tag)) => bucket(&format!("0x13a_{p1:x}"), "_", tag, known),
            _ => with(&format!("0x13a_{p1:x}")),
        },
        0x9f => power_bucket(p1, blame, leads, &symbol),
        0x133 => match p1 {
            0 => with("0x133_DPC"),
            1 => with("0x133_ISR"),
            _ => bucket("0x133", "_", &symbol, BucketForm::Approximate),
        },
        0x116 | 0x117 | 0x141 => match &blame.image {
            Some(image) => bucket(&format!("0x{base:x}"), "_IMAGE_", image, known),
            None => with(&format!("0x{base:x}")),
        },
        0xc4 if p1 < 0x20000 => with(&format!("0xc4_{p1:x}_VRF")),
        0x109 => bucket(&format!("0x109_{p4:x}"), "_", &symbol_part(None, None), known),
        // Codes outside the grammar have the general form only.
        _ => bucket(&format!("0x{base:X}"), "_", &symbol, BucketForm::Approximate),
    }
}

fn power_bucket(p1: u64, blame: &Blame, leads: &Leads, symbol: &str) -> Bucket {
    let class = format!("0x9F_{p1:x}");
    if let Some(blocked) = &leads.blocked
        && let (Some(driver), Some(image)) =
            (blocked.module.as_ref().or(blocked.driver.as_ref()), &blocked.pdo_image)
    {
        return bucket(&class, "_", &format!("{driver}_IMAGE_{image}"), BucketForm::Documented);
    }
    match (&blame.module, &blame.function, &blame.image) {
        (Some(_), Some(_), _) => bucket(&class, "_POWER_DOWN_", symbol, BucketForm::Documented),
        (Some(_), None, Some(image)) => bucket(&class, "_IMAGE_", image, BucketForm::Documented),
        _ => Bucket { id: class.clone(), class, form: BucketForm::Documented },
    }
}

/// Whether the access was an execution of the instruction pointer itself.
pub(crate) fn is_own_ip(fault: &Fault) -> bool {
    fault.ip != 0 && (fault.address == fault.ip || fault.operation == Operation::Execute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockedIrp;

    fn bug(code: u32, parameters: [u64; 4]) -> BugCheck {
        BugCheck { code, parameters, driver: None }
    }
    fn blame(module: &str, function: Option<&str>, image: &str) -> Blame {
        Blame {
            module: Some(module.into()),
            image: Some(image.into()),
            function: function.map(str::to_owned),
        }
    }
    fn id(code: u32, parameters: [u64; 4], blame: &Blame, leads: &Leads) -> String {
        kernel_bucket(code, &bug(code, parameters), blame, leads, false).id
    }

    #[test]
    fn forms_seen_in_public_analyses() {
        let none = Leads::default();
        let av = 0xffff_ffff_c000_0005;
        let drv = blame("Driver", None, "Driver.sys");
        assert_eq!(
            id(0xd1, [0; 4], &blame("NDIS", Some("NdisQueueIoWorkItem"), "NDIS.SYS"), &none),
            "AV_NDIS!NdisQueueIoWorkItem"
        );
        assert_eq!(
            id(0x7e, [av, 0, 0, 0], &blame("myfault", None, "myfault.sys"), &none),
            "AV_myfault!unknown_function"
        );
        assert_eq!(
            id(0x1e, [av, 0, 0, 0], &blame("nt", Some("CmpCreateKeyBody"), "ntoskrnl.exe"), &none),
            "0x1E_c0000005_R_nt!CmpCreateKeyBody"
        );
        assert_eq!(
            id(0x139, [0x1d, 0, 0, 0], &drv, &none),
            "0x139_1d_INVALID_BALANCED_TREE_Driver!unknown_function"
        );
        assert_eq!(
            id(0x13a, [0x12, 0, 0, 0], &blame("Driver", Some("CreateRandomFile"), "Driver.sys"), &none),
            "0x13a_12_Driver!CreateRandomFile"
        );
    }

    #[test]
    fn forms_with_tags_drivers_and_images() {
        let none = Leads::default();
        let drv = blame("Driver", None, "Driver.sys");
        let tagged = Leads { pool_tag: Some("Abcd".into()), ..Leads::default() };
        assert_eq!(id(0x13a, [8, 0, 0, 0], &Blame::default(), &tagged), "0x13a_8_Abcd");
        let blocked = Leads {
            blocked: Some(BlockedIrp {
                module: Some("RtsPer".into()),
                pdo_image: Some("pci.sys".into()),
                ..BlockedIrp::default()
            }),
            ..Leads::default()
        };
        assert_eq!(id(0x9f, [3, 0, 0, 0], &Blame::default(), &blocked), "0x9F_3_RtsPer_IMAGE_pci.sys");
        assert_eq!(
            id(0x9f, [4, 0, 0, 0], &blame("usbehci", None, "usbehci.sys"), &none),
            "0x9F_4_IMAGE_usbehci.sys"
        );
        assert_eq!(id(0x9f, [3, 0, 0, 0], &Blame::default(), &none), "0x9F_3");
        assert_eq!(
            id(0x133, [1, 0, 0, 0], &blame("nvlddmkm", None, "nvlddmkm.sys"), &none),
            "0x133_ISR_nvlddmkm!unknown_function"
        );
        assert_eq!(
            id(0x116, [0; 4], &blame("nvlddmkm", None, "nvlddmkm.sys"), &none),
            "0x116_IMAGE_nvlddmkm.sys"
        );
        assert_eq!(id(0x109, [0, 0, 0, 1], &drv, &none), "0x109_1_ANALYSIS_INCONCLUSIVE!unknown_function");
        let paged = kernel_bucket(
            0xd1,
            &bug(0xd1, [0; 4]),
            &blame("TestDriver", Some("AccessPageableMemory"), "TestDriver.sys"),
            &none,
            true,
        );
        assert_eq!(paged.id, "AV_CODE_AV_PAGED_IP_TestDriver!AccessPageableMemory");
        assert_eq!(paged.class, "AV_CODE_AV_PAGED_IP");
        let other = kernel_bucket(0xef, &bug(0xef, [0; 4]), &drv, &none, false);
        assert_eq!(
            (other.id.as_str(), other.form),
            ("0xEF_Driver!unknown_function", BucketForm::Approximate)
        );
    }
}
