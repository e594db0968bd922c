//! A perfect hash function for many keys, with at most twice as many slots: keys are divided into buckets, and each bucket has a
//! displacement that moves its keys to free slots.
//!
//! Source: F. C. Botelho, R. Pagh, N. Ziviani, "Simple and space-efficient minimal perfect hash functions"; D. Belazzougui, F. C. Botelho,
//! M. Dietzfelbinger, "Hash, displace, and compress" (2009), here without the compression. Bucket and slot are different bits of one
//! product. The first suitable multiplier of a fixed sequence is used.

const MAX_MULTIPLIERS_TRIED: u64 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisplacementHash {
    multiplier: u64,
    /// Number of bits of a bucket number, which is the top bits of the product.
    bucket_bits: u32,
    /// Number of bits of a slot number, which is the next bits of the product.
    slot_bits: u32,
    displacements: Vec<u64>,
    keys: Vec<Option<u64>>,
}

impl DisplacementHash {
    /// Builds the hash function for distinct keys; `None` if no multiplier of the sequence is suitable.
    pub fn from_keys(keys: &[u64]) -> Option<DisplacementHash> {
        let slot_bits = keys.len().next_power_of_two().trailing_zeros().max(1);
        let bucket_bits = (slot_bits - 1).max(1);
        // Odd numbers with random-looking bits (splitmix64).
        let multiplier = |number: u64| {
            let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) | 1
        };
        let empty = |number: u64| DisplacementHash {
            multiplier: multiplier(number),
            bucket_bits,
            slot_bits,
            displacements: vec![0; 1 << bucket_bits],
            keys: vec![None; 1 << slot_bits],
        };
        (1..=MAX_MULTIPLIERS_TRIED).find_map(|number| empty(number).with_keys(keys))
    }

    fn with_keys(mut self, keys: &[u64]) -> Option<DisplacementHash> {
        let mut buckets: Vec<Vec<u64>> = vec![Vec::new(); self.displacements.len()];
        for key in keys {
            buckets[self.bucket_of_key(*key)].push(*key);
        }
        let mut order: Vec<usize> = (0..buckets.len()).filter(|bucket| !buckets[*bucket].is_empty()).collect();
        order.sort_by_key(|bucket| std::cmp::Reverse(buckets[*bucket].len()));
        for bucket in order {
            let own = &buckets[bucket];
            let mut slots: Vec<u64> = own.iter().map(|key| self.hash(*key)).collect();
            slots.sort_unstable();
            if slots.windows(2).any(|pair| pair[0] == pair[1]) {
                return None;
            }
            let mask = self.keys.len() as u64 - 1;
            let is_free = |by: &u64| slots.iter().all(|slot| self.keys[((slot + by) & mask) as usize].is_none());
            self.displacements[bucket] = (0..=mask).find(is_free)?;
            for key in own {
                let slot = self.slot_of_key(*key) as usize;
                self.keys[slot] = Some(*key);
            }
        }
        Some(self)
    }

    fn bucket_of_key(&self, key: u64) -> usize {
        (key.wrapping_mul(self.multiplier) >> (64 - self.bucket_bits)) as usize
    }

    fn hash(&self, key: u64) -> u64 {
        key.wrapping_mul(self.multiplier) >> (64 - self.bucket_bits - self.slot_bits) & (self.keys.len() as u64 - 1)
    }

    /// Returns the slot in which a key would be, whether or not the table has it.
    pub fn slot_of_key(&self, key: u64) -> u64 {
        (self.hash(key) + self.displacements[self.bucket_of_key(key)]) & (self.keys.len() as u64 - 1)
    }

    /// Returns the key in each slot.
    pub fn keys_by_slot(&self) -> &[Option<u64>] {
        &self.keys
    }

    pub fn displacements(&self) -> &[u64] {
        &self.displacements
    }

    /// Returns the multiplier, the number of bits of a bucket number, and the number of bits of a slot number.
    pub fn parameters(&self) -> (u64, u32, u32) {
        (self.multiplier, self.bucket_bits, self.slot_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_slot_in_a_small_table() {
        for (count, step) in [(3u64, 1), (20, 37), (100, 1), (1000, 4097), (5000, 3), (20_000, 1 << 20)] {
            let keys: Vec<u64> = (0..count).map(|i| i * step + (i * i * 7919) % step).collect();
            let table = DisplacementHash::from_keys(&keys).expect("some multiplier serves");
            assert!(table.keys_by_slot().len() as u64 <= 2 * count && table.displacements().len() as u64 <= count);
            for key in &keys {
                assert_eq!(table.keys_by_slot()[table.slot_of_key(*key) as usize], Some(*key));
            }
            assert_eq!(table.keys_by_slot().iter().flatten().count() as u64, count);
        }
    }
}
