// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/kubedevice/kubedevice/test/sandbox"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bridge joins the nodes, in the control plane's network.
const bridge = "nodes"

// plugControlPlane makes the network that the nodes are plugged into. The control plane is its
// router.
func plugControlPlane(controlPlane *sandbox.Sandbox) error {
	err := controlPlane.Do(func() error {
		if err := loopbackAndRouting(); err != nil {
			return err
		}
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		return configure(link, controlPlaneIP+"/24", serviceIP+"/32")
	})
	if err != nil {
		return fmt.Errorf("set up the network of the control plane: %w", err)
	}
	return nil
}

// plugNode joins a node with the control plane, which gets a route to the node's pods.
func plugNode(controlPlane, node *sandbox.Sandbox, ip, pods string) error {
	err := controlPlane.Do(func() error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		if err := unplug(node.Name()); err != nil {
			return err
		}
		link := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: node.Name(), MasterIndex: master.Attrs().Index},
			PeerName:      "eth0",
			PeerNamespace: netlink.NsFd(node.NetworkNamespace().Fd()),
		}
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("add link: %w", err)
		}
		return netlink.LinkSetUp(link)
	})
	if err != nil {
		return fmt.Errorf("plug in %s: %w", node.Name(), err)
	}
	err = node.Do(func() error {
		if err := loopbackAndRouting(); err != nil {
			return err
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := configure(link, ip+"/24"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(controlPlaneIP)})
	})
	if err != nil {
		return fmt.Errorf("set up the network of %s: %w", node.Name(), err)
	}
	_, destination, err := net.ParseCIDR(pods)
	if err != nil {
		return err
	}
	err = controlPlane.Do(func() error {
		return netlink.RouteReplace(&netlink.Route{Dst: destination, Gw: net.ParseIP(ip)})
	})
	if err != nil {
		return fmt.Errorf("route to the pods of %s: %w", node.Name(), err)
	}
	return nil
}

// unplug removes the link to a node that had a power cut: the kernel takes its time with that.
func unplug(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the old link: %w", err)
	}
	return nil
}

func loopbackAndRouting() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

func configure(link netlink.Link, addresses ...string) error {
	for _, address := range addresses {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, parsed); err != nil {
			return fmt.Errorf("add address %s: %w", address, err)
		}
	}
	return netlink.LinkSetUp(link)
}
