package jsonrpc

import "testing"

func TestParseClassifies(t *testing.T) {
	m, err := Parse([]byte(`{"id":1,"method":"process/read","params":{"processId":"p"}}`))
	if err != nil || m.Kind != Request || m.ID != NumberID(1) || m.Method != "process/read" || string(m.Params) != `{"processId":"p"}` {
		t.Errorf("Parse = %+v, %v", m, err)
	}
	var read struct {
		ProcessID string  `param:"processId"`
		AfterSeq  *uint64 `param:"afterSeq"`
	}
	if err := DecodeParams(m.Params, &read); err != nil || read.ProcessID != "p" {
		t.Errorf("DecodeParams = %+v, %v", read, err)
	}
	if got := string(AppendResult(nil, m.ID, struct{}{})); got != `{"id":1,"result":{}}` {
		t.Error(got)
	}
}
