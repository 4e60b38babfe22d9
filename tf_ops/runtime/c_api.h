/* The C API of the core: all that adapters and the Python package may call.
 *
 * C types only.  Functions return an hvd_code; when it is not HVD_OK, hvd_last_error()
 * gives the text, for the calling thread, until its next call.  Nothing is thrown.
 *
 * Threads: any, except that hvd_shutdown must not be called from a `done`.
 */

#ifndef TF_OPS_RUNTIME_C_API_H_
#define TF_OPS_RUNTIME_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))

typedef enum {
  HVD_OK = 0,
  HVD_CANCELLED = 1,
  HVD_INVALID_ARGUMENT = 2,
  HVD_FAILED_PRECONDITION = 3,
  HVD_OUT_OF_RANGE = 4,
  HVD_UNIMPLEMENTED = 5,
  HVD_INTERNAL = 6,
  HVD_PEER_LOST = 7,
  HVD_DEADLINE_EXCEEDED = 8,
  HVD_SHUTDOWN = 9,
  HVD_NOT_INITIALIZED = 10
} hvd_code;

/* Numbers as in base/types.h. */
typedef enum {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_ALLTOALL = 3,
  HVD_REDUCESCATTER = 4,
  HVD_BARRIER = 5,
  HVD_JOIN = 6,
  HVD_ADD_PROCESS_SET = 7,
  HVD_REMOVE_PROCESS_SET = 8
} hvd_kind;

typedef enum {
  HVD_BOOL = 0,
  HVD_UINT8 = 1,
  HVD_INT8 = 2,
  HVD_UINT16 = 3,
  HVD_INT16 = 4,
  HVD_INT32 = 5,
  HVD_INT64 = 6,
  HVD_FLOAT16 = 7,
  HVD_BFLOAT16 = 8,
  HVD_FLOAT32 = 9,
  HVD_FLOAT64 = 10
} hvd_dtype;

typedef enum {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
} hvd_reduce_op;

HVD_API const char* hvd_last_error(void);

/* --- Start and end ------------------------------------------------------------------ */

/* Opens the sockets at which the other ranks will call, and writes what to publish about them,
 * separated by commas, at most `size` bytes with the final 0, into `endpoints`.  The next
 * hvd_start uses them. */
HVD_API int hvd_listen(int loopback_only, char* endpoints, size_t size);

/* Who takes part, the same on every rank but for the three rank numbers. */
typedef struct {
  int32_t rank, size;
  int32_t local_rank, local_size;
  int32_t cross_rank, cross_size;
  int32_t homogeneous;   /* every host has as many ranks */
  uint64_t generation;   /* one per init of the job */
  const char* nonce;     /* fresh for each generation */
  const uint8_t* secret; /* the job's */
  size_t secret_size;
  const char* const* hosts;     /* `size` names */
  const char* const* endpoints; /* `size` lists, as hvd_listen wrote them */
  int32_t num_process_sets;     /* beside set 0, which is all ranks */
  int32_t first_set_id;         /* of the first of them, the others follow; >= 1 */
  const int32_t* set_sizes;     /* ranks of each */
  const int32_t* set_ranks;     /* ascending within a set, one set after another */
  int32_t dynamic_process_sets; /* 1: sets may be added and removed; so may they by the knob */
  double start_timeout_s;       /* how long to look for the other ranks */
} hvd_world;

/* Reads the environment's knobs.  HVD_INVALID_ARGUMENT names the variable and its value. */
HVD_API int hvd_check_config(void);

/* Begins a generation.  HVD_FAILED_PRECONDITION: there is one already. */
HVD_API int hvd_start(const hvd_world* world);

/* Waits at most `seconds` until all ranks are there.  HVD_DEADLINE_EXCEEDED: not yet.
 * After any other failure the generation is over. */
HVD_API int hvd_wait_ready(double seconds);

/* Ends the generation, or one that hvd_listen has prepared.  `exit_status` 0: in order; else
 * the job is lost with this rank.  Waits at most `seconds`.  HVD_DEADLINE_EXCEEDED: what was
 * scheduled still runs; call again. */
HVD_API int hvd_shutdown(int exit_status, double seconds);

/* 1 between a successful hvd_wait_ready and hvd_shutdown. */
HVD_API int hvd_is_initialized(void);

/* Why the generation can do no more (HVD_OK: it can). */
HVD_API int hvd_failure(char* text, size_t size);

/* What the control plane of this generation has done on this rank so far. */
typedef enum {
  HVD_FRAMES_SENT = 0, /* control messages to other ranks, heartbeats included */
  HVD_FRAME_BYTES_SENT = 1,
  HVD_REPORTS_IN_FULL = 2, /* tensors that this rank announced with all they are */
  HVD_REPORTS_CACHED = 3,  /* ... by a bit, since they were negotiated before */
  HVD_TENSORS_IN_FULL = 4, /* tensors in answers to this rank, errors included */
  HVD_TENSORS_CACHED = 5,  /* ... by their number in the cache */
  HVD_CALLS = 6,           /* collectives given to the data plane; fused tensors are one */
  HVD_FRAMES_RECEIVED = 7
} hvd_counter;

/* 0 for an unknown counter, and before hvd_wait_ready has succeeded. */
HVD_API uint64_t hvd_count(hvd_counter counter);

/* --- Where this rank stands; -1 before hvd_wait_ready has succeeded ------------------ */

HVD_API int hvd_rank(void);
HVD_API int hvd_size(void);
HVD_API int hvd_local_rank(void);
HVD_API int hvd_local_size(void);
HVD_API int hvd_cross_rank(void);
HVD_API int hvd_cross_size(void);
HVD_API int hvd_is_homogeneous(void);

/* -1 also when there is no such set, or (rank) this rank is not in it. */
HVD_API int hvd_process_set_size(int process_set);
HVD_API int hvd_process_set_rank(int process_set);

/* --- Collectives ---------------------------------------------------------------------- */

typedef struct {
  const int64_t* shape; /* of `input` */
  int32_t ndim;
  const void* input; /* row-major; must live until `done` */
  /* Of the result's shape; null: call `allocate`.  May be `input` in an allreduce or broadcast. */
  void* output;
} hvd_tensor;

/* A join and a change of process sets have one int32 tensor without dimensions, whose result is the
 * rank that joined last or the number of the set. */
typedef struct {
  const char* name; /* ranks are matched by it, within the process set; not looked at of those */
  int32_t process_set;
  int32_t kind;  /* hvd_kind */
  int32_t dtype; /* hvd_dtype */
  /* allreduce of HVD_FLOAT32 or 64: HVD_FLOAT16 or HVD_BFLOAT16, to which elements are cast for the
   * way; 0: none. */
  int32_t wire_dtype;
  int32_t reduce_op; /* hvd_reduce_op; reductions */
  double prescale;   /* reductions; 1.0 for none */
  double postscale;
  int32_t root;              /* broadcast: a rank of the job; remove_process_set: the set */
  int32_t gradient;          /* 1: of a tf.compat.v1 DistributedOptimizer */
  int32_t grouped;           /* 1: the tensors are a group, of which all runs or nothing */
  int32_t num_others;        /* tensors of the group of other dtypes, in requests of their own */
  const hvd_tensor* tensors; /* copied; one, a group of them, or none for a barrier */
  int32_t num_tensors;
  /* alltoall: how many rows go to each rank of the set, in order; copied.  None: as many to
   * each. */
  const int32_t* splits;
  int32_t num_splits;
  const int32_t* ranks; /* add_process_set: ascending; copied */
  int32_t num_ranks;
  /* alltoall: gets how many rows came from each rank of the set, before `done`; may be null. */
  int32_t* received_splits;
  /* Gives memory for result `tensor` once its shape is known; returns an hvd_code.  On the data
   * thread, at most once for each. */
  int (*allocate)(void* context, int32_t tensor, const int64_t* shape, int32_t ndim, void** output);
  /* Runs exactly once, on a thread of the core, when the buffers are free again. */
  void (*done)(void* context, int code, const char* message);
  void* context;
} hvd_request;

/* Whether a request of this kind, element type and, in a reduction, hvd_reduce_op can run where
 * nothing else is wrong with it; `grouped`: as a group.  HVD_OK, or what hvd_enqueue would say.
 * Needs no hvd_start. */
HVD_API int hvd_supports(int32_t kind, int32_t dtype, int32_t reduce_op, int32_t grouped);

/* Names the next request that an adapter makes on this thread and that has no name of its
 * own: frameworks cache what they make of a name given otherwise, once for each new name.
 * Null or empty: no name. */
HVD_API void hvd_name_next(const char* name);
/* That name, and none from now on: whoever named a request sees so whether it was made.  Valid
 * until the thread's next hvd_name_next. */
HVD_API const char* hvd_take_next_name(void);

/* Returns at once.  When not HVD_OK, `done` will never run, and where that is this rank's
 * own fault the other ranks are told, so that they do not wait for it. */
HVD_API int hvd_enqueue(const hvd_request* request, uint64_t* id);

/* Tells the other ranks that this one cannot make the request, and why. */
HVD_API void hvd_refuse(const hvd_request* request, const char* reason);

/* Withdraws the request on all ranks unless it is scheduled already; `done` tells. */
HVD_API void hvd_cancel(uint64_t id);

#ifdef __cplusplus
}
#endif

#endif /* TF_OPS_RUNTIME_C_API_H_ */
