/// Compiles a function for wider registers as well, and runs the widest that the processor has:
/// `wide! { fn name(a: A) -> R = kernel; }`, where `kernel` is an `#[inline(always)]` function that the
/// compiler makes vector code of. Results are the same to the bit: nothing is fused or put in another
/// order.
///
/// `= fused kernel` is for a `kernel<const FUSED: bool>` that multiplies and adds at once where it may.
/// Wide registers then give the same bits among each other; without them the last places differ.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = fused $kernel:ident;) => {
        $crate::base::wide! {
            @ $(#[$doc])* $vis fn $name($($arg: $type),*) $(-> $ret)? = $kernel::<false>, $kernel::<true>;
        }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $kernel:ident;) => {
        $crate::base::wide! {
            @ $(#[$doc])* $vis fn $name($($arg: $type),*) $(-> $ret)? = $kernel, $kernel;
        }
    };
    (@ $(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)? = $plain:expr, $wide:expr;) => {
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::is_x86_feature_detected as has;
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $ret)? {
                    $wide($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
                fn avx512($($arg: $type),*) $(-> $ret)? {
                    $wide($($arg),*)
                }
                let fma = has!("avx2") && has!("fma");
                if fma && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                    // SAFETY: the processor has the instructions.
                    return unsafe { avx512($($arg),*) };
                }
                if fma {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $plain($($arg),*)
        }
    };
}
pub(crate) use wide;
