//! The functions of OpenCL, as far as they are wanted: signatures of `CL/cl.h` of opencl-c-headers 3.0. All are of version 1.2 or
//! earlier.

#![allow(non_snake_case, reason = "the names of the header")]

use core::ffi::{c_char, c_void};

use super::sys::{
    cl_bool, cl_command_queue, cl_command_queue_properties, cl_context, cl_context_properties,
    cl_device_id, cl_device_info, cl_device_type, cl_event, cl_event_info, cl_int, cl_mem,
    cl_mem_flags, cl_platform_id, cl_platform_info, cl_uint,
};
use crate::api::dyn_api;

/// What a driver calls with an error of a context.
pub(super) type Notify =
    Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;

dyn_api! {
    /// The functions of OpenCL.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct OpenCl {
        required {
            fn clGetPlatformIDs(
                num_entries: cl_uint,
                platforms: *mut cl_platform_id,
                num_platforms: *mut cl_uint,
            ) -> cl_int;
            fn clGetPlatformInfo(
                platform: cl_platform_id,
                param_name: cl_platform_info,
                param_value_size: usize,
                param_value: *mut c_void,
                param_value_size_ret: *mut usize,
            ) -> cl_int;
            fn clGetDeviceIDs(
                platform: cl_platform_id,
                device_type: cl_device_type,
                num_entries: cl_uint,
                devices: *mut cl_device_id,
                num_devices: *mut cl_uint,
            ) -> cl_int;
            fn clGetDeviceInfo(
                device: cl_device_id,
                param_name: cl_device_info,
                param_value_size: usize,
                param_value: *mut c_void,
                param_value_size_ret: *mut usize,
            ) -> cl_int;
            fn clCreateContext(
                properties: *const cl_context_properties,
                num_devices: cl_uint,
                devices: *const cl_device_id,
                pfn_notify: Notify,
                user_data: *mut c_void,
                errcode_ret: *mut cl_int,
            ) -> cl_context;
            fn clReleaseContext(context: cl_context) -> cl_int;
            fn clCreateCommandQueue(
                context: cl_context,
                device: cl_device_id,
                properties: cl_command_queue_properties,
                errcode_ret: *mut cl_int,
            ) -> cl_command_queue;
            fn clReleaseCommandQueue(command_queue: cl_command_queue) -> cl_int;
            fn clCreateBuffer(
                context: cl_context,
                flags: cl_mem_flags,
                size: usize,
                host_ptr: *mut c_void,
                errcode_ret: *mut cl_int,
            ) -> cl_mem;
            fn clReleaseMemObject(memobj: cl_mem) -> cl_int;
            fn clEnqueueReadBuffer(
                command_queue: cl_command_queue,
                buffer: cl_mem,
                blocking_read: cl_bool,
                offset: usize,
                size: usize,
                ptr: *mut c_void,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueWriteBuffer(
                command_queue: cl_command_queue,
                buffer: cl_mem,
                blocking_write: cl_bool,
                offset: usize,
                size: usize,
                ptr: *const c_void,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueCopyBuffer(
                command_queue: cl_command_queue,
                src_buffer: cl_mem,
                dst_buffer: cl_mem,
                src_offset: usize,
                dst_offset: usize,
                size: usize,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueReadBufferRect(
                command_queue: cl_command_queue,
                buffer: cl_mem,
                blocking_read: cl_bool,
                buffer_offset: *const usize,
                host_offset: *const usize,
                region: *const usize,
                buffer_row_pitch: usize,
                buffer_slice_pitch: usize,
                host_row_pitch: usize,
                host_slice_pitch: usize,
                ptr: *mut c_void,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueWriteBufferRect(
                command_queue: cl_command_queue,
                buffer: cl_mem,
                blocking_write: cl_bool,
                buffer_offset: *const usize,
                host_offset: *const usize,
                region: *const usize,
                buffer_row_pitch: usize,
                buffer_slice_pitch: usize,
                host_row_pitch: usize,
                host_slice_pitch: usize,
                ptr: *const c_void,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueCopyBufferRect(
                command_queue: cl_command_queue,
                src_buffer: cl_mem,
                dst_buffer: cl_mem,
                src_origin: *const usize,
                dst_origin: *const usize,
                region: *const usize,
                src_row_pitch: usize,
                src_slice_pitch: usize,
                dst_row_pitch: usize,
                dst_slice_pitch: usize,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueFillBuffer(
                command_queue: cl_command_queue,
                buffer: cl_mem,
                pattern: *const c_void,
                pattern_size: usize,
                offset: usize,
                size: usize,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueMarkerWithWaitList(
                command_queue: cl_command_queue,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clEnqueueBarrierWithWaitList(
                command_queue: cl_command_queue,
                num_events_in_wait_list: cl_uint,
                event_wait_list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int;
            fn clFlush(command_queue: cl_command_queue) -> cl_int;
            fn clWaitForEvents(num_events: cl_uint, event_list: *const cl_event) -> cl_int;
            fn clGetEventInfo(
                event: cl_event,
                param_name: cl_event_info,
                param_value_size: usize,
                param_value: *mut c_void,
                param_value_size_ret: *mut usize,
            ) -> cl_int;
            fn clReleaseEvent(event: cl_event) -> cl_int;
        }
        optional {}
    }
}
