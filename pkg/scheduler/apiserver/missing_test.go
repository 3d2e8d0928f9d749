// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// serverWith has the kinds of each group version.
type serverWith map[string][]string

func (s serverWith) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	kinds, ok := s[groupVersion]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	list := &metav1.APIResourceList{}
	for _, kind := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Kind: kind})
	}
	return list, nil
}

type away struct{}

func (away) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, errors.New("connection refused")
}

func TestAnAPIThatIsMissingIsNamed(t *testing.T) {
	pods, claims := reflect.TypeFor[*v1.Pod](), reflect.TypeFor[*resourcev1.ResourceClaim]()
	for name, test := range map[string]struct {
		synced map[reflect.Type]bool
		server resources
		want   string
	}{
		"all have synced": {synced: map[reflect.Type]bool{pods: true, claims: true}, server: serverWith{}},
		"slow, but the server has it": {
			synced: map[reflect.Type]bool{pods: false}, server: serverWith{"v1": {"Pod"}},
		},
		"no such group version": {
			synced: map[reflect.Type]bool{pods: true, claims: false}, server: serverWith{"v1": {"Pod"}},
			want: "the API server has no ResourceClaim in resource.k8s.io/v1",
		},
		"the group version without the kind": {
			synced: map[reflect.Type]bool{claims: false}, server: serverWith{"resource.k8s.io/v1": {"DeviceClass"}},
			want: "the API server has no ResourceClaim in resource.k8s.io/v1",
		},
		"a server that is away": {synced: map[reflect.Type]bool{claims: false}, server: away{}},
	} {
		t.Run(name, func(t *testing.T) {
			err := firstMissing(test.synced, test.server)
			if test.want == "" && err != nil ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

func TestInformersThatSyncAreWaitedFor(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	factory.Core().V1().Pods().Informer()
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	factory.WaitForCacheSync(t.Context().Done())
	if err := WaitForAPIs(t.Context(), factory, serverWith{}); err != nil {
		t.Error(err)
	}
}
