// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicepage

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixed is a source that has this to show.
type fixed struct {
	nodes []Node
	pods  map[string]*Pod
	err   error
}

func (f fixed) Nodes(_ context.Context, name string) ([]Node, error) {
	var found []Node
	for _, node := range f.nodes {
		if name == "" || node.Name == name {
			found = append(found, node)
		}
	}
	return found, f.err
}

func (f fixed) Pod(_ context.Context, namespace, name string) (*Pod, error) {
	return f.pods[namespace+"/"+name], f.err
}

var cluster = fixed{
	nodes: []Node{
		{Name: "bad", Problem: "unreadable inventory"},
		{Name: "cpu"},
		{Name: "n1", Devices: []Device{
			{Name: "pair/0/gpu/a", Resources: []Resource{
				{Name: "cards", Allocatable: 1, Used: 1, Holders: []Holder{{Pod: "default/p", UID: "u", Quantity: 1}}},
				{Name: "enumType", Allocatable: 5},
			}},
			{Name: "pair/0/gpu/b", Resources: []Resource{
				{Name: "memory", Allocatable: 8 << 30, Used: 3 << 30, Holders: []Holder{
					{Pod: "default/q", UID: "v", Quantity: 1 << 30},
					{Pod: "ml/r", UID: "w", Quantity: 2 << 30, Reserved: true},
				}},
			}},
		}},
	},
	pods: map[string]*Pod{
		"ml/bound": {Name: "ml/bound", Node: "n1"},
		"ml/plain": {Name: "ml/plain", Problem: "the pod asks for no device"},
		"ml/waits": {Name: "ml/waits", Verdicts: []Verdict{
			{Node: "cpu", Reason: "no GPU"},
			{Node: "n1", Reason: "no free GPU", Preemptible: true},
			{Node: "n2", Fits: true, Score: 0.754},
		}},
	},
}

func get(t *testing.T, source Source, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	response := httptest.NewRecorder()
	NewHandler(source).ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return response
}

func TestThePageIsReadByPeople(t *testing.T) {
	for target, want := range map[string]string{
		Path: "bad: unreadable inventory\n" +
			"cpu: no devices\n" +
			"n1:\n" +
			"  pair/0/gpu/a  cards     1 of 1 used          default/p\n" +
			"  pair/0/gpu/a  enumType  mask 0x5             \n" +
			"  pair/0/gpu/b  memory    3 GiB of 8 GiB used  default/q 1 GiB, ml/r 2 GiB (reserved)\n",
		Path + "?node=cpu":     "cpu: no devices\n",
		Path + "?pod=ml/bound": "ml/bound is bound to node n1: see ?node=n1\n",
		Path + "?pod=ml/plain": "ml/plain: the pod asks for no device\n",
		Path + "?pod=ml/waits": "ml/waits: the devices of 1 of 3 nodes fit\n" +
			"  cpu  does not fit  no GPU\n" +
			"  n1   does not fit  no free GPU; evicting pods could help\n" +
			"  n2   fits          score 0.75\n",
	} {
		response := get(t, cluster, http.MethodGet, target)
		if diff := cmp.Diff(want, response.Body.String()); diff != "" || response.Code != http.StatusOK {
			t.Errorf("%s: status %d (-want +got):\n%s", target, response.Code, diff)
		}
	}
}

func TestThePageIsReadByPrograms(t *testing.T) {
	var nodes nodeList
	response := get(t, cluster, http.MethodGet, Path+"?output=json")
	if err := json.Unmarshal(response.Body.Bytes(), &nodes); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cluster.nodes, nodes.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	var pod Pod
	response = get(t, cluster, http.MethodGet, Path+"?pod=ml/waits&output=json")
	if err := json.Unmarshal(response.Body.Bytes(), &pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cluster.pods["ml/waits"], &pod); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		source         Source
		method, target string
		code           int
		says           string
	}{
		"a node that is not there": {cluster, http.MethodGet, Path + "?node=x", http.StatusNotFound, `no node "x"`},
		"a pod that is not there": {
			cluster, http.MethodGet, Path + "?pod=a/b", http.StatusNotFound, `no pod "a/b"`,
		},
		"a pod without a namespace": {
			cluster, http.MethodGet, Path + "?pod=b", http.StatusBadRequest, "namespace/name",
		},
		"another output": {
			cluster, http.MethodGet, Path + "?output=xml", http.StatusBadRequest, `"xml" is unknown`,
		},
		"another path":   {cluster, http.MethodGet, Path + "/x", http.StatusNotFound, ""},
		"another method": {cluster, http.MethodPost, Path, http.StatusMethodNotAllowed, ""},
		"a source that fails": {
			fixed{err: errors.New("broken")}, http.MethodGet, Path, http.StatusInternalServerError, "broken",
		},
		"a source that fails on a pod": {
			fixed{err: errors.New("broken")}, http.MethodGet, Path + "?pod=a/b",
			http.StatusInternalServerError, "broken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			response := get(t, test.source, test.method, test.target)
			if response.Code != test.code || !strings.Contains(response.Body.String(), test.says) {
				t.Errorf("status %d: %s; want %d: %s", response.Code, response.Body, test.code, test.says)
			}
		})
	}
}
