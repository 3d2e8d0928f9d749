// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// Setting is how a cluster is defended.
type Setting string

// The settings. Bare has no policies and no seals, and every other switch is off, too.
const (
	Both          Setting = "policies and seals"
	SealsAlone    Setting = "seals alone"
	PoliciesAlone Setting = "policies alone"
	Bare          Setting = "own defence off"
)

// Settings are all of them, in the order of the table's columns.
func Settings() []Setting { return []Setting{Both, SealsAlone, PoliciesAlone, Bare} }

func (s Setting) policies() bool { return s == Both || s == PoliciesAlone }
func (s Setting) seals() bool    { return s == Both || s == SealsAlone }

// The nodes. The scheduler puts pods on scheduled alone; forgers name forged, whose devices no
// other pod gets; on Bare's third node the kubelet calls the runtime itself; on its fourth, which
// it has with NRI, kubecri has its firewall and does not bound the size of messages.
const (
	scheduled = iota
	forged
	withoutKubecri
	unbounded
)

// A vendor that no release of kubecri knows, as the configuration of the nodes declares it: its
// variable, what begins as its runtime obeys it, a device file, where mounts request its devices,
// and the declaration.
const (
	unlistedVariable = "MTHREADS_VISIBLE_DEVICES"
	unlistedPrefix   = "MTHREADS_"
	unlistedFile     = "/dev/mtgpu0"
	unlistedMounts   = "/run/mthreads"
	unlistedVendor   = `[{"name":"mthreads.com","deviceFiles":["` + unlistedFile + `"],"mountPaths":["` +
		unlistedMounts + `"],"variables":[` +
		`{"name":"` + unlistedVariable + `","nothing":"void","takes":"any"},` +
		`{"name":"` + unlistedPrefix + `X*","nothing":"no device of this vendor's at all","takes":"any"}]}]`
)

// ghost is a node that has a kubelet's credentials and no machine.
const ghost = "ghost"

// devices are how many GPUs the nodes have: a few for the pods that are scheduled, and one of its
// own for each attempt.
var devices = []int{scheduled: 32, forged: 400}

// inventory describes a node's GPUs.
func inventory(count int) string {
	return fmt.Sprintf("count: %d\nidPrefix: gpu-\nmemory: 80Gi\ntopology: [2, 4]\n", count)
}

// inventoryFile is the file in a directory with the inventory of a node.
func inventoryFile(dir string, node int) string {
	return filepath.Join(dir, fmt.Sprintf("node-%d.yaml", node+1))
}

// describe returns the cluster of a setting, whose nodes have kubecri in a mode. Files of no
// lasting value go to dir.
func (s Setting) describe(mode cluster.Mode, name, dir string, keys sealKeys) (cluster.Options, error) {
	nodes := 2
	if s == Bare {
		nodes = 3
	}
	if s == Bare && mode == cluster.ModeNRI {
		nodes = 4
	}
	options, err := cluster.Default(nodes)
	if err != nil {
		return options, err
	}
	root, err := checkout.Root()
	if err != nil {
		return options, err
	}
	options.Dir = name
	options.Kubelets = []string{ghost}
	options.Seals = seal.Off // the attempts need keys of their own
	options.Visible = append(options.Visible, dir)
	options.Scheduler.Args = append(options.Scheduler.Args, "--devices-secure-port="+apiPort)
	options.Manifests = []string{filepath.Join(root, "deploy", "rbac")}
	if s.policies() {
		options.Manifests = append(options.Manifests, filepath.Join(root, "deploy", "policies"))
	}
	if s.seals() {
		options.Scheduler.Args = append(options.Scheduler.Args, "--device-seal-key="+keys.private)
		for _, node := range options.Nodes {
			node.Kubecri.Args = append(node.Kubecri.Args, "--seal-certificates="+keys.public)
		}
	}
	for i, count := range devices {
		file := inventoryFile(dir, i)
		if err := os.WriteFile(file, []byte(inventory(count)), 0o644); err != nil {
			return options, err
		}
		options.Nodes[i].Inventory = file
	}
	if s == Bare {
		options.Nodes[withoutKubecri].Kubecri = nil
		options.Nodes[withoutKubecri].Inventory = ""
		for _, node := range options.Nodes[:withoutKubecri] {
			node.Kubecri.Args = append(node.Kubecri.Args, "--device-firewall=off")
		}
	}
	for i := range options.Nodes {
		if kubecri := options.Nodes[i].Kubecri; kubecri != nil {
			options.Nodes[i].Mode = mode
			options.Nodes[i].PodAnnotation = grants.Annotation // as an administrator may set it
			kubecri.Args = append(kubecri.Args, "--device-firewall-vendors="+unlistedVendor)
		}
	}
	if nodes > unbounded {
		kubecri := options.Nodes[unbounded].Kubecri
		kubecri.Path = filepath.Join(dir, unboundedKubecri)
		kubecri.Args = append(kubecri.Args, "--v=2") // with which it logs that it is not registered
	}
	if mode == cluster.ModeCRI { // in which the attempts are made that are about this address
		open := options.Nodes[scheduled].Kubecri
		open.Args = append(open.Args, "--metrics-bind-address=0.0.0.0:10261")
	}
	return options, nil
}

// unboundedKubecri is the program of the node unbounded, in the directory of files of no lasting
// value.
const unboundedKubecri = "kubecri-unbounded"

// sealKeys are a cluster's key for seals: the files with its halves, and what the public one has in
// it.
type sealKeys struct {
	private, public string
	certificate     []byte
	id              string
}

// newSealKeys makes a key in a directory.
func newSealKeys(dir string) (sealKeys, error) {
	key, err := newKey()
	if err != nil {
		return sealKeys{}, err
	}
	keys := sealKeys{private: filepath.Join(dir, "seal.key"), public: filepath.Join(dir, "seal.crt"),
		id: seal.KeyID(key.Public().(ed25519.PublicKey))}
	private, err := seal.EncodePrivateKeys([]ed25519.PrivateKey{key})
	if err != nil {
		return sealKeys{}, err
	}
	certificate, err := seal.NewCertificate(key, time.Now())
	if err != nil {
		return sealKeys{}, err
	}
	keys.certificate = seal.EncodeCertificates([]*x509.Certificate{certificate})
	return keys, errors.Join(os.WriteFile(keys.private, private, 0o600), os.WriteFile(keys.public, keys.certificate,
		0o644))
}
