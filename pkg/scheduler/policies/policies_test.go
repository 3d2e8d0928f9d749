// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

func TestThePoliciesThatAreLookedForAreThoseThatWeShip(t *testing.T) {
	var shipped []string
	files, err := filepath.Glob("../../../deploy/policies/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		shipped = append(shipped, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	if diff := cmp.Diff(shipped, slices.Sorted(slices.Values(required()))); diff != "" {
		t.Errorf("policies (-shipped +looked for):\n%s", diff)
	}
}

func TestPoliciesThatAreMissingAreCounted(t *testing.T) {
	metrics.Register()
	const untouched = -1
	policy := func(name string) runtime.Object {
		return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	binding := func(name string) runtime.Object {
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	var all []runtime.Object
	for _, name := range required() {
		all = append(all, policy(name), binding(name))
	}
	for name, test := range map[string]struct {
		installed []runtime.Object
		forbidden bool
		want      float64
	}{
		"none is installed":            {nil, false, float64(len(required()))},
		"all are installed":            {all, false, 0},
		"one is not bound":             {all[:len(all)-1], false, 1},
		"one is bound but missing":     {all[1:], false, 1},
		"the scheduler may not see it": {all, true, float64(len(required()))},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.installed...)
			if test.forbidden {
				client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
				})
			}
			metrics.PoliciesMissing.Set(untouched)
			check(t.Context(), client)
			got, err := testutil.GetGaugeMetricValue(metrics.PoliciesMissing)
			if err != nil || got != test.want {
				t.Errorf("missing are %v, error %v, want %v", got, err, test.want)
			}
		})
	}
}
