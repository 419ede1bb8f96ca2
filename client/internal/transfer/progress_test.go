package transfer

import (
	"context"
	"testing"
)

// A copied file counts once, also before its task is over.
func TestTransfer_Progress_CountsAFileOnce(t *testing.T) {
	var last Progress
	transfer := New(nil, nil, Options{OnProgress: func(p Progress) { last = p }})
	transfer.Copy = func(_ context.Context, name string) (size int64, changed bool, err error) {
		transfer.Progress(name, 10, 10)
		return 10, false, nil
	}
	if err := transfer.do(t.Context(), fileTask{name: "a", kind: RegularFile}); err != nil {
		t.Fatal(err)
	}
	transfer.Progress("b", 5, 1)
	if last.Bytes != 10 || last.MovingBytes != 1 {
		t.Errorf("%d bytes are completed and %d are moving", last.Bytes, last.MovingBytes)
	}
}
