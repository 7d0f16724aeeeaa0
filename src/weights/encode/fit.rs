//! The search for a scale, and a minimum, that lose least of some weights.

use super::inverse;
use crate::base::wide;

/// The nearest whole number, for sizes below 2^22; as a sum and a difference, because those go through vector
/// registers on every processor.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    const LAST_PLACE_IS_ONE: f32 = (3 << 22) as f32;
    (x + LAST_PLACE_IS_ONE) - LAST_PLACE_IS_ONE
}

/// The code of `x / scale`: whole, from `low` to `high`.
#[inline(always)]
pub(super) fn code(x: f32, inverse: f32, low: f32, high: f32) -> f32 {
    nearest((x * inverse).max(low).min(high))
}

/// The weight that is farthest from zero.
#[inline(always)]
pub(super) fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |most: f32, x| if x.abs() > most.abs() { *x } else { most })
}

wide! {
    /// `scale` of the best `x = scale * code`, codes from `low` to `high` (`-low >= high`). It is negative where the
    /// extreme weight is positive, so that this one gets the code that reaches farthest.
    pub(super) fn scale(x: &[f32], low: f32, high: f32) -> f32 = scale_of;
}

#[inline(always)]
fn scale_of(x: &[f32], low: f32, high: f32) -> f32 {
    let extreme = extreme(x);
    let mut best = (0.0, extreme / low);
    if extreme == 0.0 {
        return 0.0;
    }
    for step in -9i8..=9 {
        let inverse = (low + 0.1 * f32::from(step)) / extreme;
        let (mut product, mut square) = (0.0, 0.0);
        for x in x {
            let code = code(*x, inverse, low, high);
            product += x * code;
            square += code * code;
        }
        // Of the squares of x, so much is not lost.
        let kept = product * product / square;
        if kept > best.0 {
            best = (kept, product / square);
        }
    }
    best.1
}

wide! {
    /// `(scale, min)` of the best `x = scale * code + min`, codes from 0 to `high`. With `below`, the minimum is not
    /// above zero.
    pub(super) fn scale_and_min(x: &[f32], high: f32, below: bool) -> (f32, f32) = scale_and_min_of;
}

#[inline(always)]
fn scale_and_min_of(x: &[f32], high: f32, below: bool) -> (f32, f32) {
    let (mut least, mut most, mut sum) = (x[0], x[0], 0.0);
    for x in x {
        (least, most, sum) = (least.min(*x), most.max(*x), sum + x);
    }
    if below {
        (least, most) = (least.min(0.0), most.max(0.0));
    }
    if most == least {
        return (0.0, least);
    }
    let first = ((most - least) / high, least);
    let mut best = (error_of(x, first, least, high / (most - least), high), first);
    for step in -10i8..=10 {
        let inverse = (high + 0.1 * f32::from(step)) / (most - least);
        let (mut product, mut square, mut codes) = (0.0, 0.0, 0.0);
        for x in x {
            let code = code(x - least, inverse, 0.0, high);
            product += (x - least) * code;
            square += code * code;
            codes += code;
        }
        let found = least_squares(x.len() as f32, product, square, codes, sum, least, below);
        let error = error_of(x, found, least, inverse, high);
        if error < best.0 {
            best = (error, found);
        }
    }
    best.1
}

/// Scale and minimum for given codes. `product` is that of codes and weights above `least`.
#[inline(always)]
fn least_squares(
    n: f32,
    product: f32,
    square: f32,
    codes: f32,
    sum: f32,
    least: f32,
    below: bool,
) -> (f32, f32) {
    let above = sum - n * least;
    let determinant = n * square - codes * codes;
    if determinant <= 0.0 {
        return (0.0, sum / n);
    }
    let min = least + (square * above - codes * product) / determinant;
    if below && min > 0.0 {
        return ((product + least * codes) / square, 0.0);
    }
    ((n * product - codes * above) / determinant, min)
}

wide! {
    /// As [`error_of`], for callers that are not in wide registers yet.
    pub(super) fn error(x: &[f32], fit: (f32, f32), least: f32, inverse: f32, high: f32) -> f32 = error_of;
}

/// Sum of squared errors, for the codes that `inverse` makes of what is above `least`.
#[inline(always)]
fn error_of(x: &[f32], (scale, min): (f32, f32), least: f32, inverse: f32, high: f32) -> f32 {
    let mut sum = 0.0;
    for x in x {
        let lost = scale * code(x - least, inverse, 0.0, high) + min - x;
        sum += lost * lost;
    }
    sum
}

/// The best scale for codes that mean uneven `levels`, which rise; of `reach`, the levels that the extreme weight
/// may get, with so many steps of one around each.
pub(super) fn scale_for_levels(x: &[f32], levels: &[i8; 16], reach: [f32; 2], steps: i8) -> f32 {
    let extreme = extreme(x);
    if extreme == 0.0 {
        return 0.0;
    }
    let mut best = (0.0, extreme / reach[0]);
    for (reach, step) in reach.into_iter().flat_map(|reach| (-steps..=steps).map(move |step| (reach, step))) {
        let inverse = (reach + f32::from(step)) / extreme;
        let (mut product, mut square) = (0.0, 0.0);
        for x in x {
            let level = f32::from(levels[nearest_level(x * inverse, levels)]);
            product += x * level;
            square += level * level;
        }
        let kept = product * product / square;
        if kept > best.0 {
            best = (kept, product / square);
        }
    }
    best.1
}

/// Which of the levels, which rise, is nearest.
#[inline(always)]
pub(super) fn nearest_level(x: f32, levels: &[i8; 16]) -> usize {
    levels.windows(2).filter(|pair| x > (f32::from(pair[0]) + f32::from(pair[1])) / 2.0).count()
}

/// Codes of `x`, for a scale as the block has it, put where `put(index, code)` says.
#[inline(always)]
pub(super) fn each_code(x: &[f32], scale: f32, [low, high]: [f32; 2], mut put: impl FnMut(usize, i32)) {
    let inverse = inverse(scale);
    for (i, x) in x.iter().enumerate() {
        put(i, code(*x, inverse, low, high) as i32);
    }
}
