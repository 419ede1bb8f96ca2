package admin

import (
	"cmp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Limits of ReadAudit.
const (
	maxAuditRecords     = 10000
	defaultAuditRecords = 1000
	maxAuditBytes       = 8 << 20
	auditPartBytes      = 256 << 10
)

// ReadAudit implements the RPC.
func (s *service) ReadAudit(req *execwirev1.ReadAuditRequest, stream grpc.ServerStreamingServer[execwirev1.ReadAuditResponse]) error {
	most := int(cmp.Or(req.GetMaxRecords(), defaultAuditRecords))
	switch {
	case most > maxAuditRecords:
		return status.Errorf(codes.InvalidArgument, "max_records must be at most %d", maxAuditRecords)
	case s.audit == nil:
		return stream.Send(&execwirev1.ReadAuditResponse{Off: true})
	}
	lines, err := s.audit.Last(most, maxAuditBytes)
	if err != nil {
		return status.Errorf(codes.Internal, "failed to read the audit log: %v", err)
	}
	part, bytes := &execwirev1.ReadAuditResponse{}, 0
	for i, line := range lines {
		part.Records = append(part.Records, line)
		if bytes += len(line); bytes < auditPartBytes && i < len(lines)-1 {
			continue
		}
		if err := stream.Send(part); err != nil {
			return err
		}
		part, bytes = &execwirev1.ReadAuditResponse{}, 0
	}
	return nil
}
