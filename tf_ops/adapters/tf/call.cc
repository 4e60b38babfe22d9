#include "tf_ops/adapters/tf/call.h"

#include <utility>

namespace hvd_tf {

Call::Call(tf::OpKernelContext* context, Ended ended)
    : context_(context), ended_(std::move(ended)), manager_(context->cancellation_manager()) {}

void Call::Begin(tf::OpKernelContext* context, hvd_request* request, Ended ended) {
  const std::shared_ptr<Call> self(new Call(context, std::move(ended)));
  // A cancellation may come before the core has given a number; it is kept until then.
  if (self->manager_ != nullptr) {
    self->token_ = self->manager_->get_cancellation_token();
    self->registered_ = self->manager_->RegisterCallback(self->token_, [self] { self->Cancel(); });
  }
  const bool cancelled_already = self->manager_ != nullptr && !self->registered_;
  request->context = new std::shared_ptr<Call>(self);
  request->done = &Call::Done;
  uint64_t id = 0;
  const int code = hvd_enqueue(request, &id);
  if (code != HVD_OK) return Done(request->context, code, hvd_last_error());
  {
    std::lock_guard<std::mutex> lock(self->mutex_);
    self->id_ = id;
    if (!self->cancelled_ && !cancelled_already) return;
  }
  hvd_cancel(id);
}

tf::OpKernelContext* Call::ContextOf(void* call) {
  return (*static_cast<std::shared_ptr<Call>*>(call))->context_;
}

void Call::Cancel() {
  uint64_t id;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    id = id_;
  }
  if (id != 0) hvd_cancel(id);
}

void Call::Done(void* context, int code, const char* message) {
  const std::unique_ptr<std::shared_ptr<Call>> holder(static_cast<std::shared_ptr<Call>*>(context));
  Call& self = **holder;
  // Without waiting for a cancellation in progress, which runs code of others.  A callback
  // that still runs holds this object, and looks at nothing of TensorFlow's.
  if (self.registered_) self.manager_->TryDeregisterCallback(self.token_);
  self.ended_(code, message);
}

}  // namespace hvd_tf
