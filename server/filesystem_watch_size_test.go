package server

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/testrace"
)

// recordedChanges is a stream that records what is sent.
type recordedChanges struct {
	grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse]
	sent []*execwirev1.WatchDirectoryResponse
}

func (s *recordedChanges) Send(message *execwirev1.WatchDirectoryResponse) error {
	s.sent = append(s.sent, message)
	return nil
}

// Clients without settings of their own receive messages of up to 4 MiB.
func TestWatchDirectory_Messages_AreBounded(t *testing.T) {
	testrace.WithoutRace(t)
	const many = 200_000
	batch := fsops.Batch{Changes: make([]fsops.Change, many)}
	for i := range batch.Changes {
		batch.Changes[i] = fsops.Change{Path: fmt.Sprintf("\xff%x\xff", i), Kind: fsops.Created, Type: fsops.Regular}
	}
	var taken recordedChanges
	if err := sendBatch(&taken, batch); err != nil {
		t.Fatal(err)
	}
	received := 0
	for _, message := range taken.sent {
		received += len(message.GetChanges().GetChanges())
		if size := proto.Size(message); size > 4<<20 {
			t.Errorf("a message has %d bytes", size)
		}
	}
	if received != many {
		t.Errorf("received %d changes", received)
	}
}
