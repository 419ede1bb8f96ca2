package execserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// errorDomain is the domain of the reasons of errors.
const errorDomain = "execwire.v1"

// reasonPrefix is what the names of the enum have and those on the wire lack.
const reasonPrefix = "ERROR_REASON_"

// retryMember is the member of the data of an error that says after how many
// milliseconds the same request may succeed.
const retryMember = "retryAfterMs"

// failure returns a status with a reason.
func failure(reason execwirev1.ErrorReason, format string, args ...any) error {
	return statusWith(reason, fmt.Sprintf(format, args...), nil)
}

// invalidField returns the status of a request that cannot be written in the
// protocol for what a field says.
func invalidField(field, problem string) error {
	return statusWith(execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD, field+" "+problem, map[string]string{"field": field})
}

// statusWith returns a status as a server makes it.
func statusWith(reason execwirev1.ErrorReason, message string, metadata map[string]string) error {
	code, ok := reasonCodes[reason]
	if !ok {
		code = codes.FailedPrecondition
	}
	retryMs, retryErr := strconv.ParseInt(metadata[retryMember], 10, 64)
	delete(metadata, retryMember)
	info := &errdetails.ErrorInfo{
		Domain: errorDomain, Reason: strings.TrimPrefix(reason.String(), reasonPrefix), Metadata: metadata}
	details := []protoadapt.MessageV1{info}
	if field := metadata["field"]; field != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: field, Description: message}}})
	}
	if setting := metadata["setting"]; setting != "" && code == codes.ResourceExhausted {
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: setting, Description: message}}})
	}
	if retryErr == nil && retryMs >= 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(retryMs) * time.Millisecond)})
	}
	st, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		return status.Error(code, message)
	}
	return st.Err()
}

// statusOf returns what a call failed with as the status that it had before it was
// made an error object; a status is returned as it is.
func (c *Conn) statusOf(method string, err error) error {
	var answered *jsonrpc.Error
	if !errors.As(err, &answered) {
		return err
	}
	if full := inFull(answered); full != nil {
		return full
	}
	if reason, metadata, ok := saidBy(answered); ok {
		return statusWith(reason, answered.Message, metadata)
	}
	return guessed(method, answered)
}

// inFull returns the status that an error object has, nil if it has none.
func inFull(e *jsonrpc.Error) error {
	raw, ok := e.Data.(json.RawMessage)
	if !ok {
		return nil
	}
	var data struct {
		Status json.RawMessage `json:"status"`
	}
	var full spb.Status
	if json.Unmarshal(raw, &data) != nil || len(data.Status) == 0 || fromJSON.Unmarshal(data.Status, &full) != nil {
		return nil
	}
	if full.GetCode() == int32(codes.OK) {
		return nil // no failure is a success
	}
	return status.ErrorProto(&full)
}

// saidBy returns the reason that an error object has, and what it says besides.
func saidBy(e *jsonrpc.Error) (execwirev1.ErrorReason, map[string]string, bool) {
	raw, ok := e.Data.(json.RawMessage)
	if !ok {
		return 0, nil, false
	}
	var data map[string]any
	if json.Unmarshal(raw, &data) != nil {
		return 0, nil, false
	}
	metadata := make(map[string]string, len(data))
	for name, value := range data {
		switch value := value.(type) {
		case string:
			metadata[name] = value
		case float64:
			metadata[name] = fmt.Sprintf("%.0f", value)
		}
	}
	name := metadata["reason"]
	delete(metadata, "reason")
	if name == "" && metadata["field"] != "" {
		name = "INVALID_FIELD"
	}
	reason, known := execwirev1.ErrorReason_value[reasonPrefix+name]
	return execwirev1.ErrorReason(reason), metadata, known && reason != 0
}

// within returns a status whose fields are those of a message that a field of the
// request has.
func within(field string, err error) error {
	full := status.Convert(err).Proto()
	changed := false
	for i, packed := range full.GetDetails() {
		detail, unpackErr := packed.UnmarshalNew()
		if unpackErr != nil {
			continue
		}
		switch d := detail.(type) {
		case *errdetails.BadRequest:
			for _, violation := range d.GetFieldViolations() {
				violation.Field = field + "." + violation.GetField()
			}
		case *errdetails.ErrorInfo:
			if named := d.GetMetadata()["field"]; named != "" {
				d.Metadata["field"] = field + "." + named
			}
		default:
			continue
		}
		if repacked, packErr := anypb.New(detail); packErr == nil {
			full.Details[i], changed = repacked, true
		}
	}
	if !changed {
		return err
	}
	return status.ErrorProto(full)
}

// reasonOf is the reason of a status, unspecified for none.
func reasonOf(err error) execwirev1.ErrorReason {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return execwirev1.ErrorReason(execwirev1.ErrorReason_value[reasonPrefix+info.GetReason()])
		}
	}
	return execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
}
