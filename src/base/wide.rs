/// Compiles a function for wider registers as well, and runs the widest that the processor has:
/// `wide! { fn name(a: A) -> R = kernel; }`, where `kernel` is an `#[inline(always)]` function that the
/// compiler makes vector code of. Results are the same to the bit: nothing is fused or put in another
/// order.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $kernel:ident;) => {
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::is_x86_feature_detected as has;
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $type),*) $(-> $ret)? {
                    $kernel($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $type),*) $(-> $ret)? {
                    $kernel($($arg),*)
                }
                if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                    // SAFETY: the processor has the instructions.
                    return unsafe { avx512($($arg),*) };
                }
                if has!("avx2") {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $kernel($($arg),*)
        }
    };
}
pub(crate) use wide;
