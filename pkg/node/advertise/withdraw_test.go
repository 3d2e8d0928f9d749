// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func TestWithdrawTakesAwayWhatWasPublishedAndNothingElse(t *testing.T) {
	published := nodeWith(annotationOf(t, gpus(2)), map[string]string{"example.com/gpu": "2", "example.com/other": "1"})
	published.Annotations[deviceinfo.HoldersAnnotation] = "[]"
	published.Annotations[deviceinfo.UnhealthyAnnotation] = "[]"
	published.Annotations[deviceinfo.AttributesAnnotation] = "{}"
	published.Annotations[deviceinfo.RequiredPluginAnnotation] = deviceinfo.NRIPlugin
	client := fake.NewClientset(published)
	resources, found, err := Withdraw(t.Context(), client, "node-1")
	if err != nil || !found {
		t.Fatalf("found=%v, %v", found, err)
	}
	if diff := cmp.Diff([]string{"example.com/gpu"}, resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	want := nodeWith("", map[string]string{"example.com/other": "1"})
	got := get(t, client)
	if diff := cmp.Diff(want.Annotations, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Status, got.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() == "patch" && action.GetSubresource() != "status" {
			t.Errorf("a patch of something else than the status: %v", action)
		}
	}

	client.ClearActions()
	resources, found, err = Withdraw(t.Context(), client, "node-1")
	if len(resources) > 0 || found || err != nil {
		t.Errorf("the second time: %v, %v, %v", resources, found, err)
	}
	if n := len(client.Actions()); n != 1 {
		t.Errorf("the second time changes something: %v", client.Actions())
	}
}

func TestWithdrawLeavesANodeWithoutTheAnnotationAlone(t *testing.T) {
	client := fake.NewClientset(nodeWith("", map[string]string{"example.com/gpu": "2"}))
	if resources, found, err := Withdraw(t.Context(), client, "node-1"); len(resources) > 0 || found || err != nil {
		t.Errorf("%v, %v, %v", resources, found, err)
	}
	if got := get(t, client).Status.Capacity["example.com/gpu"]; got.Value() != 2 {
		t.Errorf("another's resource is now %v", &got)
	}
}

func TestWithdrawSaysWhatIsInTheWay(t *testing.T) {
	away := errors.New("API server away")
	for name, test := range map[string]struct {
		annotation, nodeName, failing string
		want                          []string
	}{
		"a node that is not there": {"", "node-2", "", []string{`"node-2"`, "not in the API server"}},
		"an unreadable annotation": {
			"{", "node-1", "", []string{`"node-1"`, "KubeDevice/DeviceInfo", "by hand"},
		},
		"an API server that cannot be read": {
			annotationOf(t, gpus(1)), "node-1", "get", []string{`"node-1"`, away.Error()},
		},
		"an API server that refuses the patch": {
			annotationOf(t, gpus(1)), "node-1", "patch", []string{`"node-1"`, away.Error()},
		},
	} {
		client := fake.NewClientset(nodeWith(test.annotation, nil))
		if test.failing != "" {
			client.PrependReactor(test.failing, "nodes",
				func(clienttesting.Action) (bool, apiruntime.Object, error) { return true, nil, away })
		}
		_, _, err := Withdraw(t.Context(), client, test.nodeName)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, err, want)
			}
		}
	}
}
