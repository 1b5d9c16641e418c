//! The functions behind ours.
//!
//! A [`Real`] is looked up when it is first called and kept for ever; two threads that look it up at once find the same.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of a library loaded after this one; `F` is its type, a function pointer.
pub(super) struct Real<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// The function called `name`, not looked up yet.
    ///
    /// # Safety
    /// - `F` is a function pointer type.
    /// - It is the type of the function that the C library has under `name`.
    pub(super) const unsafe fn new(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer");
        Self { name, address: AtomicPtr::new(ptr::null_mut()), function: PhantomData }
    }

    /// The function, or `None` if no other library has it.
    #[inline]
    pub(super) fn get(&self) -> Option<F> {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = self.look_up();
        }
        if address.is_null() {
            return None;
        }
        // SAFETY: not null, from dlsym, and `new` was promised that F is the type of this function.
        Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Declares a static [`Real`] for a function of the given type.
macro_rules! real {
    ($name:ident($($type:ty),*) -> $result:ty) => {{
        type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
        // SAFETY: a function pointer type, with the arguments that the manual gives for the function.
        static REAL: super::real::Real<Function> = unsafe {
            super::real::Real::new(match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no NUL inside"),
            })
        };
        &REAL
    }};
}
pub(super) use real;

#[cfg(test)]
mod tests {
    use super::Real;
    use std::ffi::c_int;

    #[test]
    fn a_function_of_the_c_library_is_found_and_an_invented_one_is_not() {
        type Abs = unsafe extern "C-unwind" fn(c_int) -> c_int;
        // SAFETY: the type of abs.
        static ABS: Real<Abs> = unsafe { Real::new(c"abs") };
        // SAFETY: the type of a function that does not exist.
        static NONE: Real<Abs> = unsafe { Real::new(c"madplane_no_such_function") };
        for _ in 0..2 {
            // SAFETY: abs has no conditions.
            assert_eq!(ABS.get().map(|abs| unsafe { abs(-3) }), Some(3));
            assert!(NONE.get().is_none());
        }
    }
}
