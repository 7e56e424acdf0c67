"""The native callbacks as text, and the layouts of what they read and of the logs that they write."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .nvtx import DOMAIN_NVTX
from .records import record_dtype

if TYPE_CHECKING:
    import numpy as np

HEADER = 64  # before the bytes that CUPTI sees: address of the next buffer, number of valid bytes
CHUNK_ENTRIES = 1 << 16
CHUNK_HEADER = 16  # address of the chunk before, number of entries used
LAUNCH_BYTES = 8
# Linux's number of the system call gettid: by machine, and for all that share one table (aarch64 does).
_GETTID = {"x86_64": 186, "ppc64le": 207}
_GETTID_GENERIC = 178
_CLOCK_MONOTONIC = 1

# (name, format, offset in bytes) of an entry in the log of calls: correlation id, number of the place, the thread as
# the system numbers it, which driver call, and when it began and ended in nanoseconds of CLOCK_MONOTONIC.
CALL_FIELDS = (
    ("id", "<u4", 0),
    ("number", "<u4", 4),
    ("thread", "<u4", 8),
    ("call", "<u4", 12),
    ("begin", "<u8", 16),
    ("end", "<u8", 24),
)
CALL_BYTES = 32

# (name, format, offset in bytes) of an entry in the log of nodes: its id, that of the node that it is a copy of or 0,
# the number of the place where it was captured, and when, in nanoseconds of CLOCK_MONOTONIC.
NODE_FIELDS = (("id", "<u8", 0), ("original", "<u8", 8), ("number", "<u4", 16), ("time", "<u8", 24))
NODE_BYTES = 32

# Offsets in CUpti_CallbackData (cupti_callbacks.h), the same in CUDA 12 and 13.
CALLBACK_SITE_OFFSET = 0
CORRELATION_DATA_OFFSET = 56
CORRELATION_ID_OFFSET = 64
API_ENTER = 0
# CUpti_CallbackDomain, CUpti_CallbackIdResource, and offsets in CUpti_ResourceData and CUpti_GraphData.
DOMAIN_RESOURCE = 3
NODE_CREATED, NODE_CLONED = 13, 20
RESOURCE_OFFSET = 16
NODE_OFFSET = 16
ORIGINAL_NODE_OFFSET = 24

_TEXT = """
@full = internal global i64 0
@mutex = internal global [64 x i8] zeroinitializer, align 16
@launches = internal global ptr null
@calls = internal global ptr null
@nodes = internal global ptr null
@node_id = internal global ptr null
@deuteron_main = global i32 0
@tracing = internal global i32 0
@ranges = internal global ptr null

declare ptr @malloc(i64)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)

define void @deuteron_requested(ptr %buffer, ptr %size, ptr %limit) {{
  %raw = call ptr @malloc(i64 {buffer_total})
  %none = icmp eq ptr %raw, null
  %room = select i1 %none, i64 0, i64 {buffer_bytes}
  %data = getelementptr i8, ptr %raw, i64 {header}
  %given = select i1 %none, ptr null, ptr %data
  store ptr %given, ptr %buffer
  store i64 %room, ptr %size
  store i64 0, ptr %limit
  ret void
}}

define void @deuteron_completed(ptr %context, i32 %stream, ptr %buffer, i64 %size, i64 %valid) {{
entry:
  %node = getelementptr i8, ptr %buffer, i64 -{header}
  %length = getelementptr i8, ptr %node, i64 8
  %address = ptrtoint ptr %node to i64
  store i64 %valid, ptr %length
  br label %push
push:
  %head = load atomic i64, ptr @full acquire, align 8
  store i64 %head, ptr %node
  %swap = cmpxchg ptr @full, i64 %head, i64 %address acq_rel monotonic
  %done = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %done, label %exit, label %push
exit:
  ret void
}}

define i64 @deuteron_take_buffers() {{
  %head = atomicrmw xchg ptr @full, i64 0 acq_rel
  ret i64 %head
}}

define internal i64 @now() {{
  %time = alloca {{ i64, i64 }}
  call i32 @clock_gettime(i32 {monotonic}, ptr %time)
  %nanoseconds_at = getelementptr i8, ptr %time, i64 8
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %nanoseconds_at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}}

; Where the next entry of a log goes, null without memory. The caller holds the mutex.
define internal ptr @appended(ptr %log, i64 %bytes) {{
entry:
  %last = load ptr, ptr %log
  %absent = icmp eq ptr %last, null
  br i1 %absent, label %fresh, label %check
check:
  %count_at = getelementptr i8, ptr %last, i64 8
  %count = load i64, ptr %count_at
  %spent = icmp uge i64 %count, {entries}
  br i1 %spent, label %fresh, label %found
fresh:
  %room = mul i64 %bytes, {entries}
  %total = add i64 %room, {chunk_header}
  %new = call ptr @malloc(i64 %total)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %full, label %link
full:
  ret ptr null
link:
  store ptr %last, ptr %new
  store ptr %new, ptr %log
  br label %found
found:
  %to = phi ptr [ %last, %check ], [ %new, %link ]
  %at = phi i64 [ %count, %check ], [ 0, %link ]
  %used = add i64 %at, 1
  %used_to = getelementptr i8, ptr %to, i64 8
  store i64 %used, ptr %used_to
  %offset = mul i64 %at, %bytes
  %start = add i64 %offset, {chunk_header}
  %slot = getelementptr i8, ptr %to, i64 %start
  ret ptr %slot
}}

define internal void @log_launch(i32 %id, i32 %number) {{
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %slot = call ptr @appended(ptr @launches, i64 {launch_bytes})
  %none = icmp eq ptr %slot, null
  br i1 %none, label %unlock, label %write
write:
  store i32 %id, ptr %slot
  %number_to = getelementptr i8, ptr %slot, i64 4
  store i32 %number, ptr %number_to
  br label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}}

define internal void @log_call(i32 %id, i32 %number, i32 %call, i64 %begin) {{
entry:
  %end = call i64 @now()
  %thread = call i64 (i64, ...) @syscall(i64 {gettid})
  %short = trunc i64 %thread to i32
  call i32 @pthread_mutex_lock(ptr @mutex)
  %slot = call ptr @appended(ptr @calls, i64 {call_bytes})
  %none = icmp eq ptr %slot, null
  br i1 %none, label %unlock, label %write
write:
  %number_to = getelementptr i8, ptr %slot, i64 4
  %thread_to = getelementptr i8, ptr %slot, i64 8
  %call_to = getelementptr i8, ptr %slot, i64 12
  %begin_to = getelementptr i8, ptr %slot, i64 16
  %end_to = getelementptr i8, ptr %slot, i64 24
  store i32 %id, ptr %slot
  store i32 %number, ptr %number_to
  store i32 %short, ptr %thread_to
  store i32 %call, ptr %call_to
  store i64 %begin, ptr %begin_to
  store i64 %end, ptr %end_to
  br label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}}

; The number of the calling thread's cell; that of the main thread without a cell, or where it has none.
define internal i32 @place() {{
  %cell = call ptr @pthread_getspecific(i32 {key})
  %told = icmp ne ptr %cell, null
  %from = select i1 %told, ptr %cell, ptr @deuteron_main
  %own = load i32, ptr %from
  %main = load i32, ptr @deuteron_main
  %followed = icmp eq i32 %own, 0
  %number = select i1 %followed, i32 %main, i32 %own
  ret i32 %number
}}

define internal void @log_node(i32 %call, ptr %data) {{
entry:
  %id = alloca i64
  %original = alloca i64
  store i64 0, ptr %id
  store i64 0, ptr %original
  %graph_at = getelementptr i8, ptr %data, i64 {resource}
  %graph = load ptr, ptr %graph_at
  %node_at = getelementptr i8, ptr %graph, i64 {node}
  %node = load ptr, ptr %node_at
  %id_of = load ptr, ptr @node_id
  %code = call i32 %id_of(ptr %node, ptr %id)
  %cloned = icmp eq i32 %call, {cloned}
  br i1 %cloned, label %copy, label %known
copy:
  %original_at = getelementptr i8, ptr %graph, i64 {original_node}
  %copied = load ptr, ptr %original_at
  %copied_code = call i32 %id_of(ptr %copied, ptr %original)
  br label %known
known:
  %number = call i32 @place()
  %time = call i64 @now()
  %of = load i64, ptr %id
  %from = load i64, ptr %original
  call i32 @pthread_mutex_lock(ptr @mutex)
  %slot = call ptr @appended(ptr @nodes, i64 {node_bytes})
  %none = icmp eq ptr %slot, null
  br i1 %none, label %unlock, label %write
write:
  %from_to = getelementptr i8, ptr %slot, i64 8
  %number_to = getelementptr i8, ptr %slot, i64 16
  %time_to = getelementptr i8, ptr %slot, i64 24
  store i64 %time, ptr %time_to
  store i64 %of, ptr %slot
  store i64 %from, ptr %from_to
  store i32 %number, ptr %number_to
  br label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}}

define void @deuteron_name_nodes(ptr %id_of) {{
  store ptr %id_of, ptr @node_id
  ret void
}}

define void @deuteron_called(ptr %user, i32 %domain, i32 %call, ptr %data) {{
entry:
  switch i32 %domain, label %driver [ i32 {domain_resource}, label %resource
                                      i32 {domain_nvtx}, label %range ]
range:
  %follower = load ptr, ptr @ranges
  %nobody = icmp eq ptr %follower, null
  br i1 %nobody, label %exit, label %follow
follow:
  call void %follower(i32 %call, ptr %data)
  br label %exit
resource:
  call void @log_node(i32 %call, ptr %data)
  ret void
driver:
  %site_at = getelementptr i8, ptr %data, i64 {site}
  %site = load i32, ptr %site_at
  %id_at = getelementptr i8, ptr %data, i64 {correlation}
  %id = load i32, ptr %id_at
  %kept_at = getelementptr i8, ptr %data, i64 {kept}
  %traced = load atomic i32, ptr @tracing monotonic, align 4
  %tracing = icmp ne i32 %traced, 0
  %entering = icmp eq i32 %site, {enter}
  %wanted = or i1 %entering, %tracing
  br i1 %wanted, label %whose, label %exit
whose:
  %number = call i32 @place()
  br i1 %entering, label %enter, label %leave
enter:
  %placed = icmp ne i32 %number, 0
  br i1 %placed, label %log, label %stamp
log:
  call void @log_launch(i32 %id, i32 %number)
  br label %stamp
stamp:
  br i1 %tracing, label %keep, label %exit
keep:
  %kept_in = load ptr, ptr %kept_at
  %begin = call i64 @now()
  store i64 %begin, ptr %kept_in
  br label %exit
leave:
  %kept_from = load ptr, ptr %kept_at
  %began = load i64, ptr %kept_from
  %never = icmp eq i64 %began, 0
  br i1 %never, label %exit, label %append
append:
  call void @log_call(i32 %id, i32 %number, i32 %call, i64 %began)
  br label %exit
exit:
  ret void
}}

define void @deuteron_follow_ranges(ptr %follower) {{
  store ptr %follower, ptr @ranges
  ret void
}}

define void @deuteron_trace(i32 %wanted) {{
  store atomic i32 %wanted, ptr @tracing monotonic, align 4
  ret void
}}

define i64 @deuteron_take_launches() {{
  %address = call i64 @taken(ptr @launches)
  ret i64 %address
}}

define i64 @deuteron_take_calls() {{
  %address = call i64 @taken(ptr @calls)
  ret i64 %address
}}

define i64 @deuteron_take_nodes() {{
  %address = call i64 @taken(ptr @nodes)
  ret i64 %address
}}

define internal i64 @taken(ptr %log) {{
  call i32 @pthread_mutex_lock(ptr @mutex)
  %head = load ptr, ptr %log
  store ptr null, ptr %log
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %address = ptrtoint ptr %head to i64
  ret i64 %address
}}
"""


def callbacks_text(buffer_bytes: int, key: int) -> str:
    """The module, for buffers of ``buffer_bytes`` and threads whose cells the thread-specific pointer ``key`` leads
    to."""
    return _TEXT.format(
        buffer_bytes=buffer_bytes,
        buffer_total=buffer_bytes + HEADER,
        header=HEADER,
        site=CALLBACK_SITE_OFFSET,
        enter=API_ENTER,
        correlation=CORRELATION_ID_OFFSET,
        kept=CORRELATION_DATA_OFFSET,
        key=key,
        entries=CHUNK_ENTRIES,
        chunk_header=CHUNK_HEADER,
        launch_bytes=LAUNCH_BYTES,
        call_bytes=CALL_BYTES,
        node_bytes=NODE_BYTES,
        resource=RESOURCE_OFFSET,
        node=NODE_OFFSET,
        original_node=ORIGINAL_NODE_OFFSET,
        cloned=NODE_CLONED,
        domain_resource=DOMAIN_RESOURCE,
        domain_nvtx=DOMAIN_NVTX,
        monotonic=_CLOCK_MONOTONIC,
        gettid=_GETTID.get(os.uname().machine, _GETTID_GENERIC),
    )


def call_dtype() -> np.dtype[np.void]:
    """The layout of an entry in the log of calls, CALL_FIELDS."""
    return record_dtype(CALL_FIELDS, CALL_BYTES)


def node_dtype() -> np.dtype[np.void]:
    """The layout of an entry in the log of nodes, NODE_FIELDS."""
    return record_dtype(NODE_FIELDS, NODE_BYTES)
