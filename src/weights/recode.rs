//! Blocks of one format into blocks of another: on all cores, and with no more floats at a time than a stretch
//! for each.

use super::BlockFormat;
use super::decode::decode;
use super::encode::encode_into;
use std::sync::Mutex;
use std::thread;

/// Weights that a thread takes at a time: whole blocks of every format, and small enough for its cache.
const STRETCH: usize = 1 << 14;

/// What was lost: sums over the weights, so that those of parts can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Of the squared differences.
    pub error: f64,
    /// Of the squared weights.
    pub square: f64,
}

impl Loss {
    /// |W - Q(W)| / |W|: the relative error, root mean square. 0 of nothing but zeros.
    pub fn relative(self) -> f64 {
        if self.square == 0.0 { 0.0 } else { (self.error / self.square).sqrt() }
    }

    pub(super) fn add(&mut self, weights: &[f32], decoded: &[f32]) {
        for (weight, decoded) in weights.iter().zip(decoded) {
            self.error += f64::from(weight - decoded).powi(2);
            self.square += f64::from(*weight).powi(2);
        }
    }
}

impl std::ops::AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.error += other.error;
        self.square += other.square;
    }
}

/// One stretch: its first weight, what is read, what is written.
type Work<'a> = (usize, &'a [u8], &'a mut [u8]);

/// Encodes `blocks` anew. What is lost is summed where `loss` asks for it, which takes another decoding.
///
/// # Errors
/// The format is one that we only read, or a weight is one that its blocks cannot hold.
pub(super) fn recode(
    blocks: &[u8],
    from: BlockFormat,
    to: BlockFormat,
    loss: Option<&mut Loss>,
) -> Result<Vec<u8>, String> {
    can_encode(to)?;
    let weights = blocks.len() / from.block_bytes() * from.block_len();
    let mut out = vec![0; weights / to.block_len() * to.block_bytes()];
    let bytes = |format: BlockFormat| STRETCH / format.block_len() * format.block_bytes();
    let stretches = (blocks.chunks(bytes(from)).zip(out.chunks_mut(bytes(to))).enumerate())
        .map(|(i, (read, written))| (i * STRETCH, read, written));
    let threads = thread::available_parallelism().map_or(1, usize::from).min(weights.div_ceil(STRETCH));
    let measured = loss.is_some();
    let sum = in_parallel(Mutex::new(stretches), threads, |work| stretch(work, from, to, measured))?;
    if let Some(loss) = loss {
        *loss += sum;
    }
    Ok(out)
}

pub(super) fn can_encode(to: BlockFormat) -> Result<(), String> {
    match to.can_encode() {
        true => Ok(()),
        false => Err(format!("glassbox reads {} and does not write it", to.name())),
    }
}

/// Whoever is free takes the next stretch.
fn in_parallel<'a>(
    work: Mutex<impl Iterator<Item = Work<'a>> + Send>,
    threads: usize,
    run: impl Fn(Work<'a>) -> Result<Loss, String> + Sync,
) -> Result<Loss, String> {
    let next = || work.lock().expect("taking the next stretch does not panic").next();
    let one = || {
        let mut sum = Loss::default();
        while let Some(stretch) = next() {
            sum += run(stretch)?;
        }
        Ok(sum)
    };
    if threads <= 1 {
        return one();
    }
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let mut sum = one();
        for other in others {
            let found = other.join().expect("encoding does not panic");
            sum = sum.and_then(|mut sum| {
                sum += found?;
                Ok(sum)
            });
        }
        sum
    })
}

fn stretch(
    (first, read, written): Work,
    from: BlockFormat,
    to: BlockFormat,
    measured: bool,
) -> Result<Loss, String> {
    let mut weights = vec![0.0; read.len() / from.block_bytes() * from.block_len()];
    decode(from, read, &mut weights);
    if !to.holds_any_float()
        && let Some(at) = weights.iter().position(|weight| !weight.is_finite())
    {
        let (at, weight, to) = (first + at, weights[at], to.name());
        return Err(format!("weight {at} is {weight}, and {to} holds finite numbers only"));
    }
    encode_into(to, &weights, written);
    let mut loss = Loss::default();
    if measured {
        let mut decoded = vec![0.0; weights.len()];
        decode(to, written, &mut decoded);
        loss.add(&weights, &decoded);
    }
    Ok(loss)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::weights::encode;

    /// Five stretches and a bit.
    fn weights() -> Vec<f32> {
        (0..5 * STRETCH + 256).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 300.0).collect()
    }

    #[test]
    fn many_stretches_are_what_one_would_be_and_their_loss_adds_up() {
        let weights = weights();
        let floats = encode(BlockFormat::F32, &weights);
        let mut loss = Loss::default();
        let blocks = recode(&floats, BlockFormat::F32, BlockFormat::Q4_0, Some(&mut loss)).unwrap();
        assert_eq!(blocks, encode(BlockFormat::Q4_0, &weights));
        let mut decoded = vec![0.0; weights.len()];
        decode(BlockFormat::Q4_0, &blocks, &mut decoded);
        let mut whole = Loss::default();
        whole.add(&weights, &decoded);
        assert!((loss.relative() - whole.relative()).abs() < 1e-9);
        assert!(whole.relative() > 0.01 && whole.relative() < 0.1);
    }

    #[test]
    fn what_a_block_cannot_hold_is_refused_with_its_place() {
        let mut weights = weights();
        weights[3 * STRETCH + 5] = f32::NAN;
        let floats = encode(BlockFormat::F32, &weights);
        let said = recode(&floats, BlockFormat::F32, BlockFormat::Q8_0, None).unwrap_err();
        assert_eq!(said, format!("weight {} is NaN, and Q8_0 holds finite numbers only", 3 * STRETCH + 5));
        assert!(recode(&floats, BlockFormat::F32, BlockFormat::BF16, None).is_ok());
        let said = recode(&floats, BlockFormat::F32, BlockFormat::IQ2_S, None).unwrap_err();
        assert_eq!(said, "glassbox reads IQ2_S and does not write it");
    }
}
