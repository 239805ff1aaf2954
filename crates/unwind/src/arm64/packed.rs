//! Packed unwind data: one word that stands for a canonical prolog and epilog.

use super::codes::Operation;

/// The fields of a packed word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of the function.
    pub length: u32,
    /// d8.. saved: `RegF + 1` when not 0.
    pub reg_f: u32,
    /// x19.. saved.
    pub reg_i: u32,
    /// x0-x7 are homed.
    pub homed: bool,
    /// 0 unchained, 1 unchained with lr, 2 chained with a signed lr, 3 chained.
    pub cr: u32,
    /// Bytes of the whole frame.
    pub frame_size: u32,
    /// A fragment without prolog and epilog (kind 2).
    pub fragment: bool,
}

impl Packed {
    /// Splits `word`, whose low two bits are 1 or 2.
    #[must_use]
    pub fn new(word: u32) -> Self {
        Self {
            fragment: word & 3 == 2,
            length: (word >> 2 & 0x7ff) * 4,
            reg_f: word >> 13 & 7,
            reg_i: word >> 16 & 15,
            homed: word >> 20 & 1 == 1,
            cr: word >> 21 & 3,
            frame_size: (word >> 23) * 16,
        }
    }
}

const FP: u8 = 29;
const LR: u8 = 30;

/// The canonical prolog as operations, last executed first. `Err` for sizes that do not add up.
pub fn packed_operations(packed: &Packed) -> Result<Vec<Operation>, &'static str> {
    if packed.reg_i > 10 {
        return Err("its packed data saves more registers than there are");
    }
    let lr_saved = packed.cr == 1;
    let vectors = if packed.reg_f == 0 { 0 } else { packed.reg_f + 1 };
    let integer_size = 8 * (packed.reg_i + u32::from(lr_saved));
    let vector_size = 8 * vectors;
    let home_size = if packed.homed { 64 } else { 0 };
    let save_size = (integer_size + vector_size + home_size).next_multiple_of(16);
    let locals =
        packed.frame_size.checked_sub(save_size).ok_or("its packed frame is smaller than what it saves")?;

    let mut prolog = Vec::new();
    if packed.cr == 2 {
        prolog.push(Operation::Authenticate);
    }
    // The first save allocates the area.
    let mut release = save_size;
    let mut take = move || std::mem::take(&mut release);
    integers(packed, lr_saved, integer_size, &mut prolog, &mut take);
    for index in (0..vectors).step_by(2) {
        let second = (index + 1 < vectors).then_some((9 + index) as u8);
        let (offset, release) = place(integer_size + 8 * index, &mut take);
        prolog.push(Operation::SaveVector { first: (8 + index) as u8, second, offset, release });
    }
    if packed.homed {
        let release = take();
        prolog.push(if release > 0 { Operation::Allocate(release) } else { Operation::Nothing });
        prolog.extend([Operation::Nothing; 3]);
    }
    frame(packed.cr >= 2, locals, &mut prolog);
    prolog.reverse();
    Ok(prolog)
}

/// Offset and release of a save: the first one is pre-indexed and lies at the bottom.
fn place(offset: u32, take: &mut impl FnMut() -> u32) -> (u32, u32) {
    match take() {
        0 => (offset, 0),
        release => (0, release),
    }
}

fn integers(
    packed: &Packed,
    lr_saved: bool,
    integer_size: u32,
    prolog: &mut Vec<Operation>,
    take: &mut impl FnMut() -> u32,
) {
    for index in (0..packed.reg_i).step_by(2) {
        let second = if index + 1 < packed.reg_i {
            Some((20 + index) as u8)
        } else {
            // An odd last register shares its store with lr.
            lr_saved.then_some(LR)
        };
        let (offset, release) = place(8 * index, take);
        prolog.push(Operation::Save { first: (19 + index) as u8, second, offset, release });
    }
    if lr_saved && packed.reg_i.is_multiple_of(2) {
        let (offset, release) = place(integer_size - 8, take);
        prolog.push(Operation::Save { first: LR, second: None, offset, release });
    }
}

/// Locals, and the frame record of a chained function.
fn frame(chained: bool, locals: u32, prolog: &mut Vec<Operation>) {
    if chained && locals <= 512 {
        prolog.push(Operation::Save { first: FP, second: Some(LR), offset: 0, release: locals });
        prolog.push(Operation::SetFrame);
        return;
    }
    if locals > 4080 {
        prolog.push(Operation::Allocate(4080));
        prolog.push(Operation::Allocate(locals - 4080));
    } else if locals > 0 {
        prolog.push(Operation::Allocate(locals));
    }
    if chained {
        prolog.push(Operation::Save { first: FP, second: Some(LR), offset: 0, release: 0 });
        prolog.push(Operation::SetFrame);
    }
}

/// Operations an epilog undoes: the prolog's without the frame pointer's set-up and the homing,
/// which need no undoing. Its length in instructions is one more, the `ret`.
#[must_use]
pub fn packed_epilog_length(operations: &[Operation]) -> usize {
    operations.iter().filter(|o| !matches!(o, Operation::SetFrame | Operation::Nothing)).count() + 1
}
