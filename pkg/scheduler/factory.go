// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/apiserver"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/failover"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/neighbours"
	"github.com/kubedevice/kubedevice/pkg/scheduler/policies"
	"github.com/kubedevice/kubedevice/pkg/scheduler/readapi"
	"github.com/kubedevice/kubedevice/pkg/scheduler/whatif"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// newFactory returns the factory of the framework plugin, which takes its settings from the
// arguments that the framework passes to it. The framework calls it once per profile; what the
// profiles share is made in the first call, and so are the read API and the check of the admission
// policies. So all profiles have the same arguments, or it returns an error. The ledger that it
// makes is stored in made.
func newFactory(
	builtIn []allocation.Named, api *readapi.Server, made *madeLedger,
) frameworkruntime.PluginFactory {
	var once sync.Once
	var shared *frameworkplugin.Shared
	var first *config.KubeDeviceArgs
	var err error
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, invalid := argsOf(object)
		if invalid != nil {
			return nil, invalid
		}
		once.Do(func() {
			first = args
			if shared, err = start(ctx, handle, args, builtIn, api); err == nil {
				made.Store(shared.Ledger())
			}
		})
		if err != nil {
			return nil, err
		}
		if other := config.Differences(first, args); len(other) > 0 {
			return nil, fmt.Errorf("the arguments must be the same in all profiles; %s differ",
				strings.Join(other, ", "))
		}
		return frameworkplugin.New(handle, shared), nil
	}
}

// argsOf returns the arguments that the framework passes, complete and valid.
func argsOf(object runtime.Object) (*config.KubeDeviceArgs, error) {
	args := &config.KubeDeviceArgs{}
	switch object := object.(type) {
	case nil:
	case *config.KubeDeviceArgs:
		args = object.DeepCopy()
	default:
		return nil, fmt.Errorf("the arguments are a %T, not a %T", object, args)
	}
	args.TypeMeta = metav1.TypeMeta{}
	config.SetDefaults(args)
	return args, config.Validate(field.NewPath("args"), args).ToAggregate()
}

// start makes what all profiles share, and starts what runs with it.
func start(
	ctx context.Context, handle fwk.Handle, args *config.KubeDeviceArgs, builtIn []allocation.Named,
	api *readapi.Server,
) (*frameworkplugin.Shared, error) {
	seals, err := openSeals(ctx, *args.SealKey, args.SealMode)
	if err != nil {
		return nil, err
	}
	schedulers := allocation.Load(
		ctx, metrics.NewRecorder(), *args.PluginDirectory, *args.AllowWritablePlugins, builtIn...)
	schedulers.SetSearchBudgets(allocation.SearchBudgets{
		Node: args.SearchBudget.Duration, Cycle: args.CycleBudget.Duration,
	})
	schedulers.SetTopology(*args.Topology)
	shared, err := frameworkplugin.NewShared(ctx, schedulers, handle, frameworkplugin.Options{
		NoVerdictCache: !*args.VerdictCache, BestDevicesWait: args.BestDevicesWait.Duration, Quota: *args.Quota,
		Seals: seals, EvictUnallocated: *args.EvictUnallocated,
	})
	if err != nil {
		return nil, err
	}
	metrics.RegisterCaches(schedulers, shared.Nodes())
	shared.Run(func(ctx context.Context) { policies.Watch(ctx, handle.ClientSet()) })
	shared.Run(func(ctx context.Context) {
		server := handle.ClientSet().Discovery()
		if err := apiserver.WaitForAPIs(ctx, handle.SharedInformerFactory(), server); err != nil {
			klog.FromContext(ctx).Error(err, "The scheduler cannot start")
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
	})
	core := handle.SharedInformerFactory().Core().V1()
	ownPods := core.Pods().Lister()
	shared.Run(func(ctx context.Context) { neighbours.Watch(ctx, ownPods, shared.PodsOn) })
	if err := startFailover(shared, schedulers, handle, seals.Keys); err != nil {
		return nil, err
	}
	err = api.Start(shared.Run, int(*args.SecurePort), readapi.Parts{
		Source: &readapi.Cluster{
			Schedulers: schedulers,
			States:     shared.Nodes(),
			NodeLister: core.Nodes().Lister(),
			PodLister:  core.Pods().Lister(),
			Bound:      shared,
		},
		Placement: whatif.New(ctx, shared, handle, configured{}).Handler(),
		Client:    handle.ClientSet(),
		Pods:      core.Pods().Lister(),
		Informers: []readapi.Informer{core.Nodes().Informer(), core.Pods().Informer()},
	})
	return shared, err
}

// openSeals reads the keys of seals, if there is a file of them. The mode is what is set, else what
// the file states, else enforce.
func openSeals(ctx context.Context, path string, set *seal.Mode) (frameworkplugin.Seals, error) {
	if path == "" {
		return frameworkplugin.Seals{Mode: seal.Off}, nil
	}
	keys, err := seal.OpenPrivateKeys(path)
	if err != nil {
		return frameworkplugin.Seals{}, fmt.Errorf("sealKey (--device-seal-key): %w; make the file with "+
			"kubecri seal-keys", err)
	}
	stated := keys.Mode()
	mode := cmp.Or(ptr.Deref(set, stated), seal.Enforce)
	if stated != "" && mode != stated {
		klog.FromContext(ctx).Info("The scheduler's seal mode is another one than its keys state for the cluster; "+
			"remove sealMode and --device-seal-mode, or change it with kubecri seal-keys set-mode",
			logkey.SealMode, string(mode), logkey.Stated, string(stated))
	}
	return frameworkplugin.Seals{Keys: keys, Mode: mode}, nil
}

// knowledge is what the plugin knows of the cluster. It is safe for concurrent use.
type knowledge struct {
	shared *frameworkplugin.Shared

	mu    sync.Mutex
	since time.Time // zero before the first call that found the plugin synced
}

var _ readapi.Knowledge = (*knowledge)(nil)

// CompleteSince implements readapi.Knowledge.
func (k *knowledge) CompleteSince() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.since.IsZero() && k.shared.Synced() {
		k.since = time.Now()
	}
	return k.since
}

// startFailover answers nodes that request other devices for pods that run. Without keys there is
// nothing by which a node could know the answer.
func startFailover(
	shared *frameworkplugin.Shared, schedulers *allocation.Set, handle fwk.Handle, keys *seal.File,
) error {
	if keys == nil {
		return nil
	}
	core := handle.SharedInformerFactory().Core().V1()
	engine := failover.New(failover.Options{
		Schedulers: schedulers, Nodes: shared.Nodes(), NodeLister: core.Nodes().Lister(), Pods: shared,
		Client: handle.ClientSet(), Keys: keys, Recorder: handle.EventRecorder(),
		Leadership: readapi.NewLeadership(&knowledge{shared: shared}),
	})
	if err := engine.Follow(core.Nodes().Informer()); err != nil {
		return fmt.Errorf("follow nodes that request other devices: %w", err)
	}
	shared.Run(engine.Run)
	return nil
}
