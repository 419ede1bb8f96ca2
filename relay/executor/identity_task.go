package executor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"
)

// maxTaskBytes is the maximum length of a task id.
const maxTaskBytes = 1024

// registerTask registers a task of the agent and returns its id.
func (i *identity) registerTask(ctx context.Context) (string, error) {
	now := timestamp(i.now())
	signature := i.agent.sign(now)
	body := marshal(struct {
		Timestamp string `json:"timestamp"`
		Signature string `json:"signature"`
	}{now, signature})
	header := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}}
	to := i.taskURL + "/v1/agent/" + i.agent.runtimeID + "/task/register"
	members, err := i.client.do(ctx, http.MethodPost, to, header, body, signature)
	if err != nil {
		return "", err
	}
	snake, _ := members.stringMember("task_id")
	camel, _ := members.stringMember("taskId")
	task := cmp.Or(snake, camel)
	if task == "" || len(task) > maxTaskBytes {
		return "", responseError(serviceAuthority, "no task_id; encrypted ids are not supported")
	}
	return task, nil
}

// assertion returns proof of the agent's task: sorted JSON members in base64url
// without padding.
func (a *agent) assertion(task, now string) string {
	return base64.RawURLEncoding.EncodeToString(marshal(struct {
		RuntimeID string `json:"agent_runtime_id"`
		Signature string `json:"signature"`
		TaskID    string `json:"task_id"`
		Timestamp string `json:"timestamp"`
	}{a.runtimeID, a.sign(task + ":" + now), task, now}))
}

// sign signs text with the agent's key.
func (a *agent) sign(text string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(a.key, []byte(a.runtimeID+":"+text)))
}

// timestamp formats t as RFC 3339, in UTC and whole seconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// marshal encodes strings as JSON, without unnecessary escapes.
func marshal(texts any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(texts); err != nil {
		panic(err) // strings can always be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
