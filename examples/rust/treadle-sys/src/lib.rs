//! Bindings to libtreadle, as much as the examples call. Structs are memory of the size that the library says, so the
//! bindings need no C compiler and stay right when a struct grows.
use std::ffi::{c_char, c_int, c_void, CStr};

pub type Raw = *mut c_void;

extern "C" {
    fn tdl_ffi_size(name: *const c_char) -> usize;
    fn tdl_ffi_align(name: *const c_char) -> usize;
    fn tdl_ffi_offset(name: *const c_char) -> usize;
    pub fn tdl_wake_open(wake: Raw, options: *const c_void) -> c_int;
    pub fn tdl_wake_close(wake: Raw);
    pub fn tdl_wake_fd(wake: Raw) -> c_int;
    pub fn tdl_wake_park_begin(wake: Raw);
    pub fn tdl_wake_park_end(wake: Raw) -> bool;
    pub fn tdl_inbox_init(inbox: Raw, wake: Raw, mark_source: *const c_void);
    pub fn tdl_inbox_post(inbox: Raw, link: Raw) -> c_int;
    pub fn tdl_inbox_take(inbox: Raw) -> Raw;
    pub fn tdl_inbox_is_empty(inbox: Raw) -> bool;
    pub fn tdl_inbox_close(inbox: Raw) -> Raw;
    pub fn tdl_queue_init(queue: Raw);
    pub fn tdl_queue_pop(queue: Raw) -> Raw;
    pub fn tdl_queue_is_empty(queue: Raw) -> bool;
    pub fn tdl_fop_read_file(
        op: Raw,
        folder: c_int,
        path: *const c_char,
        buffer: Raw,
        length: usize,
    );
    pub fn tdl_fop_of(link: Raw) -> Raw;
    pub fn tdl_fio_open(fio: Raw, options: *const c_void) -> c_int;
    pub fn tdl_fio_fd(fio: Raw) -> c_int;
    pub fn tdl_fio_hold(fio: Raw, held: bool);
    pub fn tdl_fio_step(fio: Raw);
    pub fn tdl_fio_stage(fio: Raw, op: Raw) -> c_int;
    pub fn tdl_fio_wants_flush(fio: Raw) -> bool;
    pub fn tdl_fio_flush(fio: Raw) -> c_int;
    pub fn tdl_fio_reap(fio: Raw, finished: Raw) -> usize;
    pub fn tdl_fio_close(fio: Raw, finished: Raw) -> c_int;
}

/// Memory for one struct, in zeros, at one address for as long as it lives.
pub struct Block(Box<[std::cell::UnsafeCell<u64>]>);

// What may be called from which thread stands in the headers.
unsafe impl Send for Block {}
unsafe impl Sync for Block {}

impl Block {
    pub fn new(name: &CStr) -> Block {
        let (size, align) = unsafe { (tdl_ffi_size(name.as_ptr()), tdl_ffi_align(name.as_ptr())) };
        assert!(size > 0 && align <= 8, "{name:?}");
        Block((0..size.div_ceil(8)).map(|_| 0.into()).collect())
    }

    pub fn size(name: &CStr) -> usize {
        unsafe { tdl_ffi_size(name.as_ptr()) }
    }

    pub fn raw(&self) -> Raw {
        self.0[0].get().cast()
    }
}

/// Where a public field of the struct at `raw` begins.
///
/// # Safety
/// `raw` is such a struct, and `T` the field's type.
pub unsafe fn field<T>(raw: Raw, name: &CStr) -> *mut T {
    let offset = tdl_ffi_offset(name.as_ptr());
    assert!(offset != usize::MAX, "{name:?}");
    raw.byte_add(offset).cast()
}
