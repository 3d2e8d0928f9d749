// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

func TestASchedulerIsInThePodThatItsEnvironmentNamesBeforeItKnowsAllPods(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "system")
	for _, test := range []struct {
		named, complete, listed bool
		want                    string
	}{
		{named: true, want: "own"},
		{named: true, complete: true},
		{named: true, complete: true, listed: true, want: "own"},
		{},
		{complete: true},
	} {
		if t.Setenv(schedulerapi.PodNameVariable, ""); test.named {
			t.Setenv(schedulerapi.PodNameVariable, "own")
		}
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		if test.listed {
			own := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "own"}}
			if err := pods.Add(own); err != nil {
				t.Fatal(err)
			}
		}
		i := &identity{host: "host", pods: corelisters.NewPodLister(pods)}
		if test.complete {
			now := time.Now()
			i.since.Store(&now)
		}
		if _, name := i.pod(); name != test.want {
			t.Errorf("%+v: it is in pod %q", test, name)
		}
	}
}
