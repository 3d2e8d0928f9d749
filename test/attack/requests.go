// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/test/await"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// apiRequest are the arguments of a request to the API server.
type apiRequest struct {
	// Call is the method and the path, with the query.
	Call string `json:"call"`
	// Type is that of a patch: merge, json or apply. Empty means merge.
	Type string `json:"type"`
	// Body is an object or its text, or for PUT what is merged into the object that is there.
	Body any `json:"body"`
	// Impersonate is the user as whom the request is made.
	Impersonate string `json:"impersonate"`
}

// UnmarshalJSON implements json.Unmarshaler: a text is the call.
func (r *apiRequest) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &r.Call) == nil {
		return nil
	}
	type fields apiRequest
	return strict(raw, (*fields)(r))
}

// makeRequest makes a request to the API server.
func makeRequest(ctx context.Context, p *trial, request apiRequest) (Got, error) {
	_, err := p.send(ctx, request)
	return Got{}, err
}

// send makes a request to the API server, and returns what it answers.
func (p *trial) send(ctx context.Context, request apiRequest) ([]byte, error) {
	client, err := p.client(ctx)
	if err != nil {
		return nil, err
	}
	if request.Impersonate != "" {
		if client, err = client.As(request.Impersonate); err != nil {
			return nil, err
		}
	}
	method, path, _ := strings.Cut(request.Call, " ")
	rest := client.Discovery().RESTClient()
	body := request.Body
	if method == http.MethodPut {
		object := map[string]any{}
		admin := p.admin.Discovery().RESTClient() // reading it is no part of the attempt
		current, err := admin.Get().RequestURI(withoutSubresource(path)).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(current, &object)
		}
		if err != nil {
			return nil, err
		}
		changes, _ := body.(map[string]any)
		body = merge(object, changes)
	}
	call := rest.Verb(method).RequestURI(path)
	if body != nil && body != "" {
		content, err := json.Marshal(body)
		if text, is := body.(string); is {
			content = []byte(text)
		}
		if err != nil {
			return nil, err
		}
		call = call.SetHeader("Content-Type", string(contentType(method, request.Type))).Body(content)
	}
	answer := call.Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err // with the refusal's text, which Raw does not have
	}
	return answer.Raw()
}

// contentType returns the type of a request's body.
func contentType(method, patch string) apitypes.PatchType {
	if method != http.MethodPatch {
		return "application/json"
	}
	switch patch {
	case "json":
		return apitypes.JSONPatchType
	case "apply":
		return apitypes.ApplyPatchType
	default:
		return apitypes.MergePatchType
	}
}

// withoutSubresource returns the path of an object.
func withoutSubresource(path string) string {
	for _, subresource := range []string{"/status", "/ephemeralcontainers"} {
		path = strings.TrimSuffix(path, subresource)
	}
	return path
}

// mayRequest makes a request that succeeds if the API server permits it, as it does where there is
// no such object.
func mayRequest(ctx context.Context, p *trial, request apiRequest) (Got, error) {
	if _, err := makeRequest(ctx, p, request); err != nil && !apierrors.IsNotFound(err) {
		return Got{}, err
	}
	return Got{Succeeds, "the API server permits it"}, nil
}

// maySoonRequest makes a request again until the API server permits it.
func maySoonRequest(ctx context.Context, p *trial, request apiRequest) (got Got, err error) {
	err = await.Until(ctx, "the right to "+request.Call, func(ctx context.Context) (bool, error) {
		if got, err = mayRequest(ctx, p, request); err == nil {
			return true, nil
		}
		if _, refused := refusalIn(err); refused {
			err = nil
		}
		return false, err
	})
	return got, err
}
