package client

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// add adds tasks.
func (t *transfer) add(tasks ...transferTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks = append(t.tasks, tasks...)
	t.pending += len(tasks)
	t.ready.Broadcast()
}

// next waits for a task; there is none when all are done, or one was fatal.
func (t *transfer) next() (transferTask, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.tasks) == 0 && t.pending > 0 && t.fatal == nil {
		t.ready.Wait()
	}
	if len(t.tasks) == 0 || t.fatal != nil {
		return transferTask{}, false
	}
	task := t.tasks[len(t.tasks)-1]
	t.tasks = t.tasks[:len(t.tasks)-1]
	return task, true
}

// finished notes what came of a task.
func (t *transfer) finished(ctx context.Context, task transferTask, err error, cancel context.CancelCauseFunc) {
	if err != nil && !isFatal(ctx, err) {
		t.note(task.name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	delete(t.moving, task.name)
	if err != nil && t.fatal == nil && isFatal(ctx, err) {
		t.fatal = err
		cancel(err)
	}
	t.ready.Broadcast()
}

// isFatal is whether there is no use in copying other files after err.
func isFatal(ctx context.Context, err error) bool {
	var e *Error
	if ctx.Err() != nil {
		return true
	}
	return errors.As(err, &e) && (!e.fromServer || e.Code == codes.Unavailable || e.Code == codes.Unauthenticated ||
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED)
}

// note notes a failure about one name.
func (t *transfer) note(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done.Failed == 0 {
		t.failed.Path, t.failed.Err = name, err
	}
	t.done.Failed++
	if t.options.OnFailed != nil {
		t.options.OnFailed(name, err)
	}
}

// count changes what is done.
func (t *transfer) count(change func(*Transferred)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.done)
}

// progress says how much of a file was copied.
func (t *transfer) progress(name string, size, done int64) {
	if t.options.OnProgress == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moving[name] = done
	report := TransferProgress{Transferred: t.done, Path: name, Size: size, Done: done}
	for _, n := range t.moving {
		report.MovingBytes += n
	}
	t.options.OnProgress(report)
}
