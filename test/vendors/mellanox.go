// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// RDMA is the name of Mellanox's plugin for RDMA devices that any number of containers share.
const RDMA = "k8s-rdma-shared-dp"

// rdmaConfig has both adapters in one resource, and the second in one of its own.
const rdmaConfig = `{"periodicUpdateInterval": 0, "configList": [
  {"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 3, "selectors": {"vendors": ["15b3"]}},
  {"resourceName": "hca_shared_devices_b", "rdmaHcaMax": 2, "selectors": {"deviceIDs": ["1021"]}}
]}
`

// mellanoxRDMA has no devices of its own, but a count for each resource: a container gets the
// device nodes of all adapters of the resource. It registers by a socket in the kubelet's directory
// of sockets, and describes its endpoint by the path in its own container. dir is a directory for
// its files.
func mellanoxRDMA(t tree, dir string) (Plugin, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Plugin{}, err
	}
	config, ids := filepath.Join(dir, "rdma.json"), filepath.Join(dir, "pci.ids")
	for path, content := range map[string]string{
		config: rdmaConfig,
		ids:    "15b3  Mellanox Technologies\n", // names for its log
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return Plugin{}, err
		}
	}
	const manager = "/dev/infiniband/rdma_cm"
	t[manager] = entry{major: majorRDMA, minor: 255}
	var adapters [2][]string // the device nodes of each
	for i, product := range []string{"101b", "1021"} {
		directory := t.pci([]string{"0000:07:00.0", "0000:87:00.0"}[i], i, map[string]string{
			"vendor": "0x15b3", "device": "0x" + product,
			"modalias": fmt.Sprintf("pci:v000015B3d0000%ssv000015B3sd00000001bc02sc07i00", product),
		})
		t.driver(directory, "mlx5_core")
		name := fmt.Sprintf("mlx5_%d", i)
		t[directory+"/infiniband/"+name] = entry{directory: true}
		for minor, kind := range []string{"mad/umad", "mad/issm", "verbs/uverbs"} {
			class := fmt.Sprintf("infiniband_%s%d", kind, i)
			t[directory+"/"+class+"/ibdev"] = entry{content: name}
			t["/sys/class/"+class] = entry{link: directory + "/" + class}
			node := "/dev/infiniband/" + filepath.Base(class)
			t.node(node, majorRDMA, uint32(64*minor+i), directory+"/"+class)
			adapters[i] = append(adapters[i], node)
		}
	}
	p := Plugin{
		Name: RDMA, Args: []string{"--config-file=" + config}, Env: []string{"PCIDB_PATH=" + ids},
		Registry: true, HideRDMA: true,
	}
	add := func(resource types.ResourceName, count int, nodes ...string) {
		for i := range count {
			p.Devices = append(p.Devices, Device{Resource: resource, ID: fmt.Sprint(i), Nodes: append(nodes, manager)})
		}
	}
	add("rdma/hca_shared_devices_a", 3, append(adapters[0], adapters[1]...)...)
	add("rdma/hca_shared_devices_b", 2, adapters[1]...)
	return p, nil
}
