package executor

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/execwire/execwire/internal/secretfile"
)

// signInFile is the path of the file in which the reference implementation
// keeps that somebody has signed in.
type signInFile string

// claimsMember is where an id token says which account it is for.
const claimsMember = "https://api.openai.com/auth"

// Header implements Credentials.
func (f signInFile) Header(context.Context) (http.Header, error) {
	text, err := secretfile.Secret(string(f))
	if err != nil {
		return nil, &CredentialsError{Problem: "the sign-in file cannot be used", Err: err}
	}
	var members object
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, f.unusable("is not a JSON object")
	}
	if !signedInWithChatGPT(members) {
		return nil, &CredentialsError{
			Problem: "remote exec-server registration requires ChatGPT authentication; API key and Agent Identity auth are not supported",
			Fix:     "run `codex login` anew, or name a file with a token for the registry with --remote-token-file; " + string(f) + " has another kind",
		}
	}
	var tokens object
	if err := json.Unmarshal(members["tokens"], &tokens); err != nil || tokens == nil {
		return nil, f.unusable("holds no tokens")
	}
	access, _ := tokens.text("access_token")
	if !isToken([]byte(access)) {
		return nil, f.unusable("holds no access_token")
	}
	header := bearer(access)
	idToken, _ := tokens.text("id_token")
	claims := unverifiedClaims(idToken)
	account, ok := tokens.text("account_id")
	if !ok {
		account, _ = claims.text("chatgpt_account_id")
	}
	if err := addAccount(header, account, string(claims["chatgpt_account_is_fedramp"]) == "true"); err != nil {
		return nil, f.unusable("holds an account_id that cannot be sent")
	}
	return header, nil
}

// String implements Credentials.
func (f signInFile) String() string { return "the sign-in in " + string(f) }

func (f signInFile) unusable(problem string) error {
	return &CredentialsError{Problem: string(f) + " " + problem, Fix: "run `codex login` anew"}
}

// signedInWithChatGPT reports whether the tokens are what counts. Files without
// auth_mode are those of an API key if they have one.
func signedInWithChatGPT(members object) bool {
	if mode, ok := members.text("auth_mode"); ok {
		return strings.HasPrefix(strings.ToLower(mode), "chatgpt")
	}
	_, hasKey := members.text("OPENAI_API_KEY")
	return !hasKey
}

// unverifiedClaims reads what an id token says of the account. It is not
// verified: the file is the user's own, and the registry judges the access token.
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

// addAccount adds the headers that name an account, if there is one.
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
