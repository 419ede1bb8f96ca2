package server

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// changesTaken is a stream that keeps what is sent.
type changesTaken struct {
	grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse]
	sent []*execwirev1.WatchDirectoryResponse
}

func (s *changesTaken) Send(message *execwirev1.WatchDirectoryResponse) error {
	s.sent = append(s.sent, message)
	return nil
}

// However many changes there are to tell, each message is one that clients take
// which were not told to take more than 4 MiB.
func TestMessagesOfChangesAreSmall(t *testing.T) {
	const many = 200_000
	batch := fsops.Batch{Changes: make([]fsops.Change, many)}
	for i := range batch.Changes {
		batch.Changes[i] = fsops.Change{Path: fmt.Sprintf("\xff%x\xff", i), Kind: fsops.Created, Type: fsops.Regular}
	}
	var taken changesTaken
	if err := sendBatch(&taken, batch); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, message := range taken.sent {
		told += len(message.GetChanges().GetChanges())
		if size := proto.Size(message); size > 4<<20 {
			t.Errorf("a message has %d bytes", size)
		}
	}
	if told != many {
		t.Errorf("%d changes were told", told)
	}
}
