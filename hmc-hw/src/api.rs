//! The functions of a loaded library as a table of pointers, filled once.
//!
//! `dyn_api!` makes such a table from C signatures: functions that the library must have, and
//! functions that only some versions have. A call through it costs as much as a linked call; no symbol is
//! looked up again.
//!
//! The pointers are copied out of the library and have no lifetime: code that fills a table never closes its library,
//! not even after the last use of the table.

use libloading::{Library, Symbol};

/// Returns one function of a library, if the library has it.
///
/// # Safety
/// `F` is the type of a function pointer. If the library has the symbol, it is a function of that
/// type.
pub(crate) unsafe fn lookup<F: Copy>(library: &Library, symbol: &str) -> Option<F> {
    // A symbol may exist and be null: `Option` makes `None` of it.
    // SAFETY: `F` is as the caller promises, and an `Option` of a function pointer has its layout.
    let found: Symbol<'_, Option<F>> = unsafe { library.get(symbol) }.ok()?;
    *found
}

/// Makes a structure of function pointers from C signatures.
///
/// ```text
/// dyn_api! {
///     /// What it is.
///     pub(crate) struct Name {
///         required { fn must(n: c_int) -> c_int; }
///         optional { fn may(); }
///     }
/// }
/// ```
///
/// A required function becomes a field `unsafe extern "C" fn(n: c_int) -> c_int`, an optional one an
/// `Option` of such. `Name::load` fills all of them from a library.
macro_rules! dyn_api {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            required { $(
                fn $must:ident($($must_arg:ident: $must_type:ty),* $(,)?) $(-> $must_result:ty)?;
            )* }
            optional { $(
                fn $may:ident($($may_arg:ident: $may_type:ty),* $(,)?) $(-> $may_result:ty)?;
            )* }
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $(pub(crate) $must:
                unsafe extern "C" fn($($must_arg: $must_type),*) $(-> $must_result)?,)*
            $(pub(crate) $may:
                Option<unsafe extern "C" fn($($may_arg: $may_type),*) $(-> $may_result)?>,)*
        }

        impl $name {
            /// Copies the pointers out of a library.
            ///
            /// # Errors
            /// All required functions that it lacks.
            ///
            /// # Safety
            /// The library's functions of these names have the types that are declared here. It is
            /// never closed: the pointers stay valid until the process ends.
            pub(crate) unsafe fn load(
                library: &libloading::Library,
            ) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the types of the library's functions are as the caller promises.
                    let $must = unsafe { $crate::api::lookup(library, stringify!($must)) };
                    if $must.is_none() {
                        missing.push(stringify!($must));
                    }
                )*
                $(
                    // SAFETY: the types of the library's functions are as the caller promises.
                    let $may = unsafe { $crate::api::lookup(library, stringify!($may)) };
                )*
                match ($($must,)*) {
                    ($(Some($must),)*) => Ok(Self { $($must,)* $($may,)* }),
                    _ => Err(missing),
                }
            }
        }
    };
}
pub(crate) use dyn_api;

#[cfg(test)]
mod tests {
    use core::ffi::{c_char, c_int};
    use libloading::Library;
    use libloading::os::unix;

    dyn_api! {
        /// Functions of the C library, and some that no library has.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Present {
            required {
                fn abs(n: c_int) -> c_int;
                fn strlen(text: *const c_char) -> usize;
            }
            optional {
                fn toupper(letter: c_int) -> c_int;
                fn hmc_no_such_function(first: c_int, second: *mut c_int);
            }
        }
    }

    dyn_api! {
        #[derive(Debug)]
        #[expect(dead_code, reason = "it is never filled")]
        pub(crate) struct Absent {
            required {
                fn hmc_absent_first();
                fn abs(n: c_int) -> c_int;
                fn hmc_absent_second(n: c_int);
            }
            optional {
                fn hmc_absent_third();
            }
        }
    }

    /// The program itself, with the C library that it is linked to; there is nothing to close.
    fn program() -> Library {
        unix::Library::this().into()
    }

    #[test]
    fn a_table_has_the_functions_of_the_library() {
        // SAFETY: the types are those of the C library; it stays as long as the program.
        let api = unsafe { Present::load(&program()) }.unwrap();
        // SAFETY: any number but the lowest has an absolute value.
        assert_eq!(unsafe { (api.abs)(-7) }, 7);
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { (api.strlen)(c"seven".as_ptr()) }, 5);
        let upper = api.toupper.unwrap();
        // SAFETY: the number is a letter.
        assert_eq!(unsafe { upper(0x61) }, 0x41);
        assert!(api.hmc_no_such_function.is_none());
    }

    #[test]
    fn every_missing_function_is_named() {
        // SAFETY: as above; the names that do not exist have no type.
        let missing = unsafe { Absent::load(&program()) }.unwrap_err();
        assert_eq!(missing, ["hmc_absent_first", "hmc_absent_second"]);
    }
}
