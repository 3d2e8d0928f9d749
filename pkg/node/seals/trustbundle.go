// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seals

import (
	"context"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Why a trust bundle cannot be read, with the next step.
var (
	errNoTrustBundle = errors.New("it does not exist; create it with the certificates of the scheduler's seal keys")
	errNotServed     = errors.New("the API server does not serve certificates.k8s.io/v1 ClusterTrustBundles, which " +
		"Kubernetes does from 1.37 on; use --seal-certificates in its place")
	errForbidden = errors.New("this node may not read it; nodes may by default, see the role kubedevice-kubecri")
)

// WatchTrustBundle keeps the keys of the trust bundle up to date until ctx is done, and caches them
// on disk. It needs no rights beyond the kubelet's.
func (k *Keys) WatchTrustBundle(ctx context.Context, client kubernetes.Interface) {
	if k.options.TrustBundle == "" {
		return
	}
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, k.options.TrustBundle).String()
	bundles := client.CertificatesV1().ClusterTrustBundles()
	lister := &clientcache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = named
			list, err := bundles.List(ctx, options)
			return list, k.noteError(ctx, client, err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = named
			watching, err := bundles.Watch(ctx, options)
			return watching, k.noteError(ctx, client, err)
		},
	}
	store, controller := clientcache.NewInformerWithOptions(clientcache.InformerOptions{
		ListerWatcher: clientcache.ToListWatcherWithWatchListSemantics(lister, client),
		ObjectType:    &certificatesv1.ClusterTrustBundle{},
		Handler: clientcache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { k.take(ctx, object.(*certificatesv1.ClusterTrustBundle)) },
			UpdateFunc: func(_, object any) { k.take(ctx, object.(*certificatesv1.ClusterTrustBundle)) },
			DeleteFunc: func(any) { k.fail(ctx, errNoTrustBundle) },
		},
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		controller.RunWithContext(ctx)
	}()
	if clientcache.WaitForCacheSync(ctx.Done(), controller.HasSynced) && len(store.List()) == 0 {
		k.noteNone(ctx)
	}
	<-stopped
}

// take reads a state of the trust bundle.
func (k *Keys) take(ctx context.Context, bundle *certificatesv1.ClusterTrustBundle) {
	text := bundle.Spec.TrustBundle
	verifier, mode, err := parse(text)
	if err != nil {
		k.fail(ctx, err)
		return
	}
	k.set(ctx, &k.bundle, verifier, mode, nil)
	if err := k.cache.Save(cached{k.options.TrustBundle, text}); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot cache the trust bundle; a start without the API server has no keys")
	}
}

// fail records why the trust bundle cannot be read.
func (k *Keys) fail(ctx context.Context, err error) {
	k.set(ctx, &k.bundle, nil, "", k.bundleError(err))
}

// noteNone records that the API server has no such trust bundle, unless it was read meanwhile.
func (k *Keys) noteNone(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bundle.err != nil {
		k.setLocked(ctx, &k.bundle, nil, "", k.bundleError(errNoTrustBundle))
	}
}

func (k *Keys) bundleError(err error) error {
	return fmt.Errorf("--seal-trust-bundle: ClusterTrustBundle %q: %w", k.options.TrustBundle, err)
}

// noteError records an answer of the API server that will not change by itself, and returns it. An
// API server that is away is no such answer: the keys that are known are as good then. One that
// does not serve trust bundles forbids them to nodes, too.
func (k *Keys) noteError(ctx context.Context, client kubernetes.Interface, err error) error {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !servesTrustBundles(client):
		k.fail(ctx, errNotServed)
	case apierrors.IsForbidden(err):
		k.fail(ctx, errForbidden)
	}
	return err
}

// servesTrustBundles reports whether the API server serves trust bundles, as far as it says.
func servesTrustBundles(client kubernetes.Interface) bool {
	list, err := client.Discovery().ServerResourcesForGroupVersion(certificatesv1.SchemeGroupVersion.String())
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "clustertrustbundles"
	})
}
