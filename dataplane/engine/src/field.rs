//! Offsets (stand-in until every table of `madplane-wire` has landed).

#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    bit: u16,
    width: u16,
}

#[allow(clippy::cast_possible_truncation)]
impl Field {
    pub(crate) const fn whole(byte: u16, width: u16) -> Self {
        Self { bit: byte * 8, width }
    }
    pub(crate) const fn bits(byte: u16, hi: u16, lo: u16) -> Self {
        let word = match hi {
            0..=7 => 8,
            8..=15 => 16,
            16..=31 => 32,
            _ => 64,
        };
        Self { bit: byte * 8 + (word - 1 - hi), width: hi - lo + 1 }
    }
    pub(crate) const fn max(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }
    #[inline(always)]
    pub(crate) const fn get(self, data: &[u8]) -> u64 {
        let (start, end) = (self.bit as usize / 8, (self.bit as usize + self.width as usize).div_ceil(8));
        let mut value = 0_u64;
        let mut at = start;
        while at < end {
            value = value << 8 | data[at] as u64;
            at += 1;
        }
        value >> (end * 8 - self.bit as usize - self.width as usize) & self.max()
    }
    #[inline(always)]
    pub(crate) const fn set(self, data: &mut [u8], value: u64) {
        let (start, end) = (self.bit as usize / 8, (self.bit as usize + self.width as usize).div_ceil(8));
        let shift = end * 8 - self.bit as usize - self.width as usize;
        let mut keep = !(self.max() << shift);
        let mut put = (value & self.max()) << shift;
        let mut at = end;
        while at > start {
            at -= 1;
            data[at] = data[at] & keep as u8 | put as u8;
            keep >>= 8;
            put >>= 8;
        }
    }
    #[inline(always)]
    pub(crate) const fn get_u8(self, data: &[u8]) -> u8 {
        self.get(data) as u8
    }
    #[inline(always)]
    pub(crate) const fn get_u16(self, data: &[u8]) -> u16 {
        self.get(data) as u16
    }
    #[inline(always)]
    pub(crate) const fn get_u32(self, data: &[u8]) -> u32 {
        self.get(data) as u32
    }
    #[inline(always)]
    pub(crate) const fn get_bool(self, data: &[u8]) -> bool {
        self.get(data) != 0
    }
}

pub(crate) mod mad {
    use super::Field;
    pub(crate) const BASE_VERSION: Field = Field::whole(0, 8);
    pub(crate) const MGMT_CLASS: Field = Field::whole(1, 8);
    pub(crate) const CLASS_VERSION: Field = Field::whole(2, 8);
    pub(crate) const METHOD: Field = Field::whole(3, 8);
    pub(crate) const STATUS: Field = Field::whole(4, 16);
    pub(crate) const TID: Field = Field::whole(8, 64);
    pub(crate) const ATTRIBUTE: Field = Field::whole(16, 16);
    pub(crate) const MODIFIER: Field = Field::whole(20, 32);
    pub(crate) const M_KEY: Field = Field::whole(24, 64);
}

pub(crate) mod pi {
    use super::Field;
    pub(crate) const M_KEY: Field = Field::whole(0, 64);
    pub(crate) const GID_PREFIX: Field = Field::whole(8, 64);
    pub(crate) const LID: Field = Field::whole(16, 16);
    pub(crate) const SM_LID: Field = Field::whole(18, 16);
    pub(crate) const CAPABILITY_MASK: Field = Field::whole(20, 32);
    pub(crate) const M_KEY_LEASE: Field = Field::whole(26, 16);
    pub(crate) const LOCAL_PORT: Field = Field::whole(28, 8);
    pub(crate) const WIDTH_ENABLED: Field = Field::whole(29, 8);
    pub(crate) const WIDTH_SUPPORTED: Field = Field::whole(30, 8);
    pub(crate) const WIDTH_ACTIVE: Field = Field::whole(31, 8);
    pub(crate) const SPEED_SUPPORTED: Field = Field::bits(32, 7, 4);
    pub(crate) const STATE: Field = Field::bits(32, 3, 0);
    pub(crate) const PHYS_STATE: Field = Field::bits(33, 7, 4);
    pub(crate) const DOWN_DEFAULT: Field = Field::bits(33, 3, 0);
    pub(crate) const PROTECT_BITS: Field = Field::bits(34, 7, 6);
    pub(crate) const LMC: Field = Field::bits(34, 2, 0);
    pub(crate) const SPEED_ACTIVE: Field = Field::bits(35, 7, 4);
    pub(crate) const SPEED_ENABLED: Field = Field::bits(35, 3, 0);
    pub(crate) const NEIGHBOR_MTU: Field = Field::bits(36, 7, 4);
    pub(crate) const SM_SL: Field = Field::bits(36, 3, 0);
    pub(crate) const VL_CAP: Field = Field::bits(37, 7, 4);
    pub(crate) const INIT_TYPE: Field = Field::bits(37, 3, 0);
    pub(crate) const VL_HIGH_LIMIT: Field = Field::whole(38, 8);
    pub(crate) const VL_ARB_HIGH_CAP: Field = Field::whole(39, 8);
    pub(crate) const VL_ARB_LOW_CAP: Field = Field::whole(40, 8);
    pub(crate) const MTU_CAP: Field = Field::bits(41, 3, 0);
    pub(crate) const VL_STALL: Field = Field::bits(42, 7, 5);
    pub(crate) const HOQ_LIFE: Field = Field::bits(42, 4, 0);
    pub(crate) const OP_VLS: Field = Field::bits(43, 7, 4);
    pub(crate) const ENFORCE_IN: Field = Field::bits(43, 3, 3);
    pub(crate) const ENFORCE_OUT: Field = Field::bits(43, 2, 2);
    pub(crate) const FILTER_RAW_IN: Field = Field::bits(43, 1, 1);
    pub(crate) const FILTER_RAW_OUT: Field = Field::bits(43, 0, 0);
    pub(crate) const M_KEY_VIOLATIONS: Field = Field::whole(44, 16);
    pub(crate) const P_KEY_VIOLATIONS: Field = Field::whole(46, 16);
    pub(crate) const Q_KEY_VIOLATIONS: Field = Field::whole(48, 16);
    pub(crate) const GUID_CAP: Field = Field::whole(50, 8);
    pub(crate) const CLIENT_REREGISTER: Field = Field::bits(51, 7, 7);
    pub(crate) const MCAST_TRAP_SUPPRESSION: Field = Field::bits(51, 6, 5);
    pub(crate) const SUBNET_TIMEOUT: Field = Field::bits(51, 4, 0);
    pub(crate) const RESP_TIME: Field = Field::bits(52, 4, 0);
    pub(crate) const LOCAL_PHY_ERRORS: Field = Field::bits(53, 7, 4);
    pub(crate) const OVERRUN_ERRORS: Field = Field::bits(53, 3, 0);
    pub(crate) const EXT2_ACTIVE: Field = Field::bits(56, 6, 5);
    pub(crate) const EXT2_SUPPORTED: Field = Field::bits(56, 4, 3);
    pub(crate) const EXT2_ENABLED: Field = Field::bits(56, 2, 0);
    pub(crate) const CAPABILITY_MASK2: Field = Field::whole(60, 16);
    pub(crate) const EXT_ACTIVE: Field = Field::bits(62, 7, 4);
    pub(crate) const EXT_SUPPORTED: Field = Field::bits(62, 3, 0);
    pub(crate) const EXT_ENABLED: Field = Field::bits(63, 4, 0);
}

pub(crate) mod ni {
    use super::Field;
    pub(crate) const BASE_VERSION: Field = Field::whole(0, 8);
    pub(crate) const CLASS_VERSION: Field = Field::whole(1, 8);
    pub(crate) const NODE_TYPE: Field = Field::whole(2, 8);
    pub(crate) const NUM_PORTS: Field = Field::whole(3, 8);
    pub(crate) const SYSTEM_GUID: Field = Field::whole(4, 64);
    pub(crate) const NODE_GUID: Field = Field::whole(12, 64);
    pub(crate) const PORT_GUID: Field = Field::whole(20, 64);
    pub(crate) const PARTITION_CAP: Field = Field::whole(28, 16);
    pub(crate) const DEVICE_ID: Field = Field::whole(30, 16);
    pub(crate) const REVISION: Field = Field::whole(32, 32);
    pub(crate) const LOCAL_PORT: Field = Field::whole(36, 8);
    pub(crate) const VENDOR_ID: Field = Field::whole(37, 24);
}

pub(crate) mod si {
    use super::Field;
    pub(crate) const LINEAR_CAP: Field = Field::whole(0, 16);
    pub(crate) const MULTICAST_CAP: Field = Field::whole(4, 16);
    pub(crate) const LINEAR_TOP: Field = Field::whole(6, 16);
    pub(crate) const DEFAULT_PORT: Field = Field::whole(8, 8);
    pub(crate) const DEFAULT_MCAST_PRIMARY: Field = Field::whole(9, 8);
    pub(crate) const DEFAULT_MCAST_NOT_PRIMARY: Field = Field::whole(10, 8);
    pub(crate) const LIFE_TIME: Field = Field::bits(11, 7, 3);
    pub(crate) const PORT_STATE_CHANGE: Field = Field::bits(11, 2, 2);
    pub(crate) const ENFORCE_CAP: Field = Field::whole(14, 16);
    pub(crate) const INBOUND_ENFORCE: Field = Field::bits(16, 7, 7);
    pub(crate) const OUTBOUND_ENFORCE: Field = Field::bits(16, 6, 6);
    pub(crate) const FILTER_RAW_IN: Field = Field::bits(16, 5, 5);
    pub(crate) const FILTER_RAW_OUT: Field = Field::bits(16, 4, 4);
    pub(crate) const ENHANCED_PORT0: Field = Field::bits(16, 3, 3);
    pub(crate) const MULTICAST_TOP: Field = Field::whole(18, 16);
}
