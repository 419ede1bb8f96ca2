package executor

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/execwire/execwire/internal/secretfile"
)

// signInFile is the path of the file in which the reference implementation stores
// a sign-in.
type signInFile string

// claimsMember is the claim of an id token that describes the account.
const claimsMember = "https://api.openai.com/auth"

// Header implements Credentials.
func (f signInFile) Header(context.Context) (http.Header, error) {
	text, err := secretfile.Secret(string(f))
	if err != nil {
		return nil, &CredentialsError{Problem: "the sign-in file is unusable", Err: err}
	}
	var members object
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, f.unusable("is not a JSON object")
	}
	if !signedInWithChatGPT(members) {
		return nil, &CredentialsError{
			Problem: "remote exec-server registration requires ChatGPT authentication; API key and Agent Identity auth are not supported",
			Fix:     "run `codex login` again, or name a file with a token for the registry with --remote-token-file; " + string(f) + " has credentials of another kind",
		}
	}
	var tokens object
	if err := json.Unmarshal(members["tokens"], &tokens); err != nil || tokens == nil {
		return nil, f.unusable("has no tokens")
	}
	access, _ := tokens.stringMember("access_token")
	if !isToken([]byte(access)) {
		return nil, f.unusable("has no access_token")
	}
	header := bearer(access)
	idToken, _ := tokens.stringMember("id_token")
	claims := unverifiedClaims(idToken)
	account, ok := tokens.stringMember("account_id")
	if !ok {
		account, _ = claims.stringMember("chatgpt_account_id")
	}
	if err := addAccount(header, account, string(claims["chatgpt_account_is_fedramp"]) == "true"); err != nil {
		return nil, f.unusable("has an account_id that is not valid in a header")
	}
	return header, nil
}

// String implements Credentials.
func (f signInFile) String() string { return "the sign-in in " + string(f) }

func (f signInFile) unusable(problem string) error {
	return &CredentialsError{Problem: string(f) + " " + problem, Fix: "run `codex login` again"}
}

// signedInWithChatGPT reports whether the file's tokens apply. A file without
// auth_mode but with an API key is for the API key.
func signedInWithChatGPT(members object) bool {
	if mode, ok := members.stringMember("auth_mode"); ok {
		return strings.HasPrefix(strings.ToLower(mode), "chatgpt")
	}
	_, hasKey := members.stringMember("OPENAI_API_KEY")
	return !hasKey
}

// unverifiedClaims returns the account claims of an id token. They are not
// verified: the file belongs to the user, and the registry verifies the access
// token.
func unverifiedClaims(idToken string) object {
	parts := strings.Split(idToken, ".")
	if len(parts) != 3 {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var all, account object
	if err := json.Unmarshal(text, &all); err != nil {
		return nil
	}
	if err := json.Unmarshal(all[claimsMember], &account); err != nil {
		return nil
	}
	return account
}

// addAccount adds the headers that name the account, if there is one.
func addAccount(header http.Header, account string, fedramp bool) error {
	if account != "" {
		if !isToken([]byte(account)) {
			return errNotAHeader
		}
		header["Chatgpt-Account-Id"] = []string{account}
	}
	if fedramp {
		header["X-Openai-Fedramp"] = []string{"true"}
	}
	return nil
}
