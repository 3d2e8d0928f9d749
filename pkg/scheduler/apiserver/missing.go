// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
)

// retryInterval is the time from one look at the informers to the next.
const retryInterval = 5 * time.Second

// resources is what is needed of a discovery client.
type resources interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// WaitForAPIs waits until the caches of all informers of the factory have synced. It returns an
// error that names the API when one of them never will, because the server does not have what it
// lists: upstream's scheduler, which waits for all caches before it schedules, would wait for ever.
// A server that does not answer, or forbids, may do otherwise later, and is waited for. It returns
// nil when ctx is done.
func WaitForAPIs(ctx context.Context, factory informers.SharedInformerFactory, server resources) error {
	var missing error
	_ = wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		now, cancel := context.WithCancel(ctx)
		cancel()
		// Informers that have not started are not listed; a standby may start them much later.
		synced := factory.WaitForCacheSync(now.Done())
		missing = firstMissing(synced, server)
		return missing != nil || allSynced(synced), missing
	})
	return missing
}

func allSynced(synced map[reflect.Type]bool) bool {
	for _, ok := range synced {
		if !ok {
			return false
		}
	}
	return len(synced) > 0
}

// firstMissing returns an error for the first API, by name, that the server does not have and that
// the cache of an informer waits for.
func firstMissing(synced map[reflect.Type]bool, server resources) error {
	var waiting []schema.GroupVersionKind
	for objectType, ok := range synced {
		if ok {
			continue
		}
		if object, isObject := reflect.New(objectType.Elem()).Interface().(runtime.Object); isObject {
			kinds, _, _ := scheme.Scheme.ObjectKinds(object)
			waiting = append(waiting, kinds...)
		}
	}
	slices.SortFunc(waiting, func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, kind := range waiting {
		list, err := server.ServerResourcesForGroupVersion(kind.GroupVersion().String())
		if apierrors.IsNotFound(err) || err == nil && !has(list, kind.Kind) {
			return fmt.Errorf("the API server has no %s in %s, which an enabled feature gate or plugin of this "+
				"scheduler lists: disable that with --feature-gates or in --config, enable the API in the API server, "+
				"or emulate its version with --%s", kind.Kind, kind.GroupVersion(), emulatedVersion)
		}
	}
	return nil
}

func has(list *metav1.APIResourceList, kind string) bool {
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
}
