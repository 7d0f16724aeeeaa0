//! AWQ (Lin et al. 2023) as AutoAWQ packs it for its GEMM kernels: `qweight`, `qzeros`, `scales`.

use super::super::item::Item;
use super::super::json::Json;
use super::super::weights::Weights;
use super::packed::{Groups, Layout, Packed, Zeros};
use crate::weights::CheckpointError;

pub(super) fn unpack(said: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    let bits = said.u64_of(&["bits", "w_bit"])?.unwrap_or(4);
    if bits != 4 {
        return Err(said.wrong("bits", format!("is {bits}; 4 is supported for AWQ")));
    }
    let version = said.str("version")?.unwrap_or("gemm");
    if !version.eq_ignore_ascii_case("gemm") {
        return Err(said.wrong("version", format!("is {version:?}; gemm is supported")));
    }
    let size = said.i64("group_size")?.or(said.i64("q_group_size")?);
    let size = size.and_then(|size| usize::try_from(size).ok());
    for name in weights.ending(".qweight") {
        let stem = name.trim_end_matches(".qweight").to_owned();
        let item = matrix(weights, &stem, size)?;
        weights.put(format!("{stem}.weight"), item);
    }
    Ok(())
}

fn matrix(weights: &mut Weights, stem: &str, size: Option<usize>) -> Result<Item, CheckpointError> {
    let codes = weights.require(&format!("{stem}.qweight"))?;
    let zeros = weights.require(&format!("{stem}.qzeros"))?;
    let scales = weights.require(&format!("{stem}.scales"))?;
    let wrong = |problem: String| weights.wrong(stem, problem);
    let num_groups = scales.shape.first().copied().unwrap_or(0);
    let (columns, words) = match *codes.shape.as_slice() {
        [columns, words] if columns > 0 && words > 0 && num_groups > 0 => (columns, words),
        _ => {
            let problem = format!("its codes have shape {:?}, its scales {:?}", codes.shape, scales.shape);
            return Err(wrong(problem));
        }
    };
    let groups = Groups::even(columns, num_groups, size);
    let (rows, zeros) = (8 * words, Zeros::Awq(zeros));
    let packed = Packed { rows, columns, bits: 4, layout: Layout::Awq, codes, scales, zeros, groups };
    packed.into_item(weights.files()).map_err(wrong)
}
