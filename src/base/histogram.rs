use serde::{Deserialize, Serialize};

/// Count, mean, extremes and percentiles of a set of samples, in the samples' own unit.
/// Percentiles interpolate linearly between neighbours, as numpy does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub count: usize,
    pub mean: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Summary {
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|x| x.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let Some((&min, &max)) = sorted.first().zip(sorted.last()) else { return Self::default() };
        Self {
            count: sorted.len(),
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            min,
            p50: percentile(&sorted, 0.50),
            p90: percentile(&sorted, 0.90),
            p99: percentile(&sorted, 0.99),
            max,
        }
    }
}

fn percentile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_as_numpy_does() {
        let s = Summary::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!((s.count, s.mean, s.min, s.max), (4, 2.5, 1.0, 4.0));
        assert!((s.p50 - 2.5).abs() < 1e-12 && (s.p90 - 3.7).abs() < 1e-12);
    }

    #[test]
    fn nothing_and_not_a_number_are_no_samples() {
        assert_eq!(Summary::of([]), Summary::default());
        assert_eq!(Summary::of([f64::NAN, 1.0]).count, 1);
    }
}
