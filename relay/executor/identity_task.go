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

// maxTaskBytes is the longest id of a task.
const maxTaskBytes = 1024

// registerTask has the authority make a task of the agent, and returns its id.
func (i *identity) registerTask(ctx context.Context) (string, error) {
	now := timestamp(i.now())
	signature := i.agent.sign(now)
	body := marshal(struct {
		Timestamp string `json:"timestamp"`
		Signature string `json:"signature"`
	}{now, signature})
	header := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}}
	to := i.tasks.base + "/v1/agent/" + i.agent.runtimeID + "/task/register"
	members, err := i.tasks.asker.ask(ctx, http.MethodPost, to, header, body, signature)
	if err != nil {
		return "", err
	}
	snake, _ := members.text("task_id")
	camel, _ := members.text("taskId")
	task := cmp.Or(snake, camel)
	if task == "" || len(task) > maxTaskBytes {
		return "", &AnswerError{Who: whoAuthority, Problem: "it has no task_id; ids that are encrypted are not understood"}
	}
	return task, nil
}

// assertion is what shows a task of the agent: members in the order of their
// names, in base64url without padding.
func (a *agent) assertion(task, now string) string {
	return base64.RawURLEncoding.EncodeToString(marshal(struct {
		RuntimeID string `json:"agent_runtime_id"`
		Signature string `json:"signature"`
		TaskID    string `json:"task_id"`
		Timestamp string `json:"timestamp"`
	}{a.runtimeID, a.sign(task + ":" + now), task, now}))
}

// sign returns the signature of text in the name of the agent.
func (a *agent) sign(text string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(a.key, []byte(a.runtimeID+":"+text)))
}

// timestamp is RFC 3339 in UTC and whole seconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// marshal returns texts as JSON, with no character escaped that need not be.
func marshal(texts any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(texts); err != nil {
		panic(err) // texts always can
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
