package daemon_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Clients choose the names of unknown calls, and compressed headers repeat them for one byte.
// Long names are shortened in the log.
func TestLog_UnknownCallNames_AreShortened(t *testing.T) {
	l := lock(t, many, func(l *locked) string { return l.principal("ci", `"all"`) })
	for _, method := range []string{
		"/" + strings.Repeat("s", 3000) + "/m", "/s/" + strings.Repeat("m", 3000), "/" + strings.Repeat("/", 3000),
		"/execwire.v1.ProcessService/" + strings.Repeat("ü", 1500),
	} {
		for _, conn := range []grpc.ClientConnInterface{l.dial(onTLS), l.dial(onGRPC)} {
			l.expectUnknown(conn.Invoke(l.ctx, method, &emptypb.Empty{}, &emptypb.Empty{}))
		}
		l.expect(l.dial(onGRPC).Invoke(l.as("ci"), method, &emptypb.Empty{}, &emptypb.Empty{}), codes.Unimplemented, "NOT_IMPLEMENTED")
	}
	for line := range strings.Lines(l.log.String()) {
		if len(line) > 1000 {
			t.Errorf("a line of %d bytes: %.200s", len(line), line)
		}
	}
	if !strings.Contains(l.log.String(), "s…") || !strings.Contains(l.log.String(), "m…") {
		t.Errorf("the log does not name the calls: %s", l.log)
	}
}
