//! What goes wrong with the target's packets on their way.

use serde::{Deserialize, Serialize};

/// Something done to the `at`-th data packet (from 1) that the target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injected {
    pub at: u32,
    pub what: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    Drop,
    /// One byte of the payload is another.
    Corrupt,
    Duplicate,
    /// Every byte is written alone.
    Split,
    /// Noise comes before it.
    Garbage,
    /// Its id is none.
    WrongId,
    /// It comes 300 ms later, as does what is behind it.
    Delay,
    /// Neither it nor anything after it comes.
    Stall,
    /// The connection ends instead.
    Disconnect,
}

/// What to write instead of a frame.
pub(crate) enum Written {
    Parts(Vec<Vec<u8>>),
    Later(Vec<u8>),
    Disconnect,
}

/// Applies the faults of a scenario.
#[derive(Debug)]
pub(crate) struct Faults {
    faults: Vec<Injected>,
    packets: u32,
    stalled: bool,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Injected>) -> Self {
        Self { faults, packets: 0, stalled: false }
    }

    pub(crate) fn apply(&mut self, frame: Vec<u8>) -> Written {
        if self.stalled {
            return Written::Parts(Vec::new());
        }
        if frame.first() != Some(&0x30) {
            return Written::Parts(vec![frame]);
        }
        self.packets = self.packets.saturating_add(1);
        let Some(fault) = self.faults.iter().find(|fault| fault.at == self.packets) else {
            return Written::Parts(vec![frame]);
        };
        let changed = |at: usize| {
            let mut frame = frame.clone();
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1;
            }
            frame
        };
        Written::Parts(match fault.what {
            Fault::Drop => vec![],
            Fault::Corrupt => vec![changed(20)],
            Fault::WrongId => vec![changed(9)],
            Fault::Duplicate => vec![frame.clone(), frame],
            Fault::Split => frame.into_iter().map(|byte| vec![byte]).collect(),
            Fault::Garbage => vec![vec![0x00, 0x30, 0x31, 0x69, 0xff, 0x30, 0x30], frame],
            Fault::Delay => return Written::Later(frame),
            Fault::Stall => {
                self.stalled = true;
                Vec::new()
            }
            Fault::Disconnect => return Written::Disconnect,
        })
    }
}
