// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

func pod(name, node string, devices bool) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name}, Spec: v1.PodSpec{NodeName: node}}
	if devices {
		pod.Annotations = map[string]string{deviceinfo.Annotation: `{"nodename":"n","runningcontainer":{}}`}
	}
	return pod
}

func TestPodsWithDevicesOnTheSchedulersNodeAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		own  *v1.Pod // nil if the scheduler runs in no pod
		on   []*v1.Pod
		fail error
		want float64
	}{
		"none": {own: pod("own", "n", false), on: []*v1.Pod{pod("own", "n", false)}},
		"two of three": {
			own: pod("own", "n", false), want: 2,
			on: []*v1.Pod{pod("a", "n", true), pod("b", "n", false), pod("c", "n", true)},
		},
		"it runs in no pod":       {on: []*v1.Pod{pod("a", "n", true)}},
		"its pod has no node yet": {own: pod("own", "", false), on: []*v1.Pod{pod("a", "", true)}},
		"pods that are not known": {own: pod("own", "n", false), fail: errors.New("unknown")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", "system")
			t.Setenv("POD_NAME", "own")
			metrics.Register()
			metrics.DevicePodsOnOwnNode.Set(0)
			synctest.Test(t, func(t *testing.T) {
				indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.
					MetaNamespaceIndexFunc})
				if test.own != nil {
					if err := indexer.Add(test.own); err != nil {
						t.Fatal(err)
					}
				}
				go Watch(t.Context(), corelisters.NewPodLister(indexer), func(node string) ([]*v1.Pod, error) {
					return slices.DeleteFunc(slices.Clone(test.on), func(pod *v1.Pod) bool {
						return pod.Spec.NodeName != node
					}), test.fail
				})
				synctest.Wait()
			})
			got, err := testutil.GetGaugeMetricValue(metrics.DevicePodsOnOwnNode)
			if err != nil || got != test.want {
				t.Errorf("the metric is %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
