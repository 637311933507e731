//! Contains the names of services that filters such as `port http` use, each with its port and protocol. The names are
//! common names of the IANA registry, and the same on every host, because no file of the host is read.
//!
//! As in libpcap, the name of a service that exists for one protocol only also selects that protocol: `port ntp` means
//! `udp port 123`.

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Names of services that have the same port in TCP and in UDP.
const BOTH: &str = "
    7 echo, 9 discard null sink, 13 daytime, 19 chargen source ttytst, 37 time timserver, 49 tacacs, 53 dns domain,
    88 kerberos kerberos-sec kerberos5 krb5, 111 portmapper sunrpc, 161 snmp, 162 snmp-trap snmptrap, 163 cmip-man,
    164 cmip-agent, 369 rpc2portmap, 370 codaauth2, 389 ldap, 427 svrloc, 443 https, 464 kpasswd, 514 syslog,
    538 gdomap, 554 rtsp, 636 ldaps, 646 ldp, 655 tinc, 750 kdc kerberos-iv kerberos4, 751 kerberos-master,
    853 domain-s, 1194 openvpn, 1645 datametrics old-radius, 1646 old-radacct sa-msg-port, 1812 radius,
    1813 radacct radius-acct, 2049 nfs, 2086 gnunet, 2101 rtcm-sc104, 2430 venus, 2431 venus-se, 2432 codasrv,
    2433 codasrv-se, 2583 mon, 3205 isns, 3493 nut, 5060 sip, 5061 sip-tls, 6346 gnutella-svc, 6347 gnutella-rtr,
    27374 asp";

/// Ports of TCP only.
const OF_TCP: &str = "
    1 tcpmux, 11 systat users, 15 netstat, 17 qotd quote, 20 ftp-data, 21 ftp, 22 ssh, 23 telnet, 25 mail smtp,
    43 nicname whois, 70 gopher, 79 finger, 80 http www, 102 iso-tsap tsap, 104 acr-nema dicom, 106 poppassd,
    110 pop-3 pop3, 113 auth authentication ident tap, 119 nntp readnews untp, 135 epmap loc-srv, 139 netbios-ssn,
    143 imap imap2, 174 mailq, 179 bgp, 199 smux, 209 qmtp, 210 wais z3950, 345 pawserv, 346 zserv, 444 snpp,
    445 microsoft-ds, 465 smtps ssmtp submissions urd, 487 saft, 512 exec, 513 login, 514 cmd shell,
    515 printer spooler, 540 uucp uucpd, 543 klogin, 544 krcmd kshell, 548 afpovertcp, 563 nntps snntp, 587 submission,
    607 nqs, 628 qmqp, 631 ipp, 706 silc, 749 kerberos-adm, 754 hprop krb-prop krb5_prop krb_prop,
    775 moira-db moira_db, 777 moira-update moira_update, 783 spamd, 871 supfilesrv, 873 rsync, 989 ftps-data, 990 ftps,
    992 telnets, 993 imaps, 995 pop3s, 1080 socks, 1093 proofd, 1094 rootd, 1099 rmiregistry, 1127 supfiledbg,
    1178 skkserv, 1236 rmtcfg, 1313 xtel, 1314 xtelw, 1352 lotusnote lotusnotes, 1433 ms-sql-s, 1524 ingreslock,
    1649 kermit, 1677 groupwise, 2000 cisco-sccp, 2119 gsigatekeeper, 2121 iprop, 2135 gris, 2401 cvspserver,
    2600 zebrasrv, 2601 zebra, 2602 ripd, 2603 ripngd, 2604 ospfd, 2605 bgpd, 2606 ospf6d, 2607 ospfapi, 2608 isisd,
    2628 dict, 2792 f5-globalsite, 2811 gsiftp, 2947 gpsd, 3050 gds-db gds_db, 3260 iscsi-target, 3306 mysql,
    3389 ms-wbt-server, 3632 distcc, 3689 daap, 3690 subversion svn, 4031 suucp, 4094 sysrqd, 4190 sieve,
    4353 f5-iquery, 4369 epmd, 4373 remctl, 4460 ntske, 4557 fax, 4559 hylafax, 4691 mtn, 4899 radmin-port,
    4949 lrrd munin, 5222 jabber-client xmpp-client, 5269 jabber-server xmpp-server, 5308 cfengine,
    5432 postgres postgresql, 5556 freeciv rptp, 5666 nrpe, 5667 nsca, 5671 amqps, 5672 amqp, 5680 canna,
    6000 x11 x11-0, 6001 x11-1, 6002 x11-2, 6003 x11-3, 6004 x11-4, 6005 x11-5, 6006 x11-6, 6007 x11-7, 6379 redis,
    6444 sge-qmaster sge_qmaster, 6445 sge-execd sge_execd, 6446 mysql-proxy, 6514 syslog-tls,
    6566 sane sane-port saned, 6667 ircd, 6697 ircs-u, 7000 bbs, 7100 font-service xfs, 8021 zope-ftp,
    8080 http-alt webcache, 8081 tproxy, 8088 omniorb, 8140 puppet, 8990 clc-build-daemon, 9098 xinetd, 9101 bacula-dir,
    9102 bacula-fd, 9103 bacula-sd, 9418 git, 9667 xmms2, 9673 zope, 10000 webmin, 10050 zabbix-agent,
    10051 zabbix-trapper, 10080 amanda, 10081 kamanda, 10082 amandaidx, 10083 amidxtape, 10809 nbd, 11371 hkp,
    17004 sgi-cad, 17500 db-lsp, 22125 dcap, 22128 gsidcap, 22273 wnn6, 24554 binkp, 30865 csync2, 57000 dircproxy,
    60177 tfido, 60179 fido";

/// Ports of UDP only.
const OF_UDP: &str = "
    21 fsp fspd, 67 bootps, 68 bootpc, 69 tftp, 123 ntp, 137 netbios-ns, 138 netbios-dgm, 177 xdmcp, 213 ipx,
    319 ptp-event, 320 ptp-general, 371 Clearcase clearcase, 500 isakmp, 512 biff comsat, 513 who whod, 517 talk,
    518 ntalk, 520 route routed router, 546 dhcpv6-client, 547 dhcpv6-server, 623 asf-rmcp, 751 kerberos_master,
    752 passwd-server passwd_server, 779 moira-ureg moira_ureg, 1210 predict, 1434 ms-sql-m, 1701 l2f l2tp,
    2102 zephyr-srv, 2103 zephyr-clt, 2104 zephyr-hm, 3130 icp icpv2, 4500 ipsec-nat-t, 4569 iax, 5353 mdns, 5555 rplay,
    6696 babel, 7000 afs3-fileserver, 7001 afs3-callback, 7002 afs3-prserver, 7003 afs3-vlserver, 7004 afs3-kaserver,
    7005 afs3-volser, 7007 afs3-bos, 7008 afs3-update, 7009 afs3-rmtsys, 17001 sgi-cmsd, 17002 sgi-crsd, 17003 sgi-gcd";

/// The port of a service, and the protocol if the name exists for one protocol only.
pub fn find(name: &str) -> Option<(u16, Option<u8>)> {
    let tables = [(BOTH, None), (OF_TCP, Some(TCP)), (OF_UDP, Some(UDP))];
    tables.into_iter().find_map(|(table, protocol)| {
        let of_port = |entry: &str| {
            let (port, names) = entry.trim().split_once(' ')?;
            names.split(' ').any(|n| n == name).then(|| port.parse().ok()).flatten()
        };
        table.split(',').find_map(of_port).map(|port| (port, protocol))
    })
}

/// The name of a service that is most similar to an unknown name.
pub fn near(name: &str) -> Option<&'static str> {
    let entries = [BOTH, OF_TCP, OF_UDP].into_iter().flat_map(|table| table.split(','));
    base::nearest(name, entries.flat_map(|entry| entry.split_whitespace().skip(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_entry_has_a_port_and_unique_names() {
        let mut names = BTreeSet::new();
        for entry in [BOTH, OF_TCP, OF_UDP].iter().flat_map(|t| t.split(',')) {
            let mut words = entry.split_whitespace();
            let port: u16 = words.next().and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{entry:?}"));
            let before = names.len();
            for name in words {
                assert!(names.insert(name), "{name} occurs twice");
                assert_eq!(find(name).map(|s| s.0), Some(port), "{name}");
            }
            assert!(names.len() > before, "{entry:?}");
        }
        assert_eq!(
            (find("ntp"), find("domain"), find("http")),
            (Some((123, Some(UDP))), Some((53, None)), Some((80, Some(TCP))))
        );
        assert_eq!((find("53"), find(""), find("nosuchservice")), (None, None, None));
    }
}
