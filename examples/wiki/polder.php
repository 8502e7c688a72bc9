<?php
// For the end of LocalSettings.php: require '/etc/mediawiki/polder.php';
if ( !defined( 'MEDIAWIKI' ) ) {
	exit;
}

// Pages for visitors who are not logged in may be kept, and are purged when they change.
$wgUseCdn = true;

// Where edges listen. Each passes a purge on to all; name two, since MediaWiki sends it only once.
$wgCdnServers = [ '127.0.0.1:8080' ];

// What visitors' URLs begin with, but http even if theirs are https: how a purge names pages.
$wgInternalServer = 'http://wiki.example';

// The machines of the edges, which are believed about the addresses of visitors.
$wgCdnServersNoPurge = [ '127.0.0.1' ];

// MediaWiki also lets pages be kept under URLs that it purges late or never: redirects, which a job
// of its queue purges, and for an hour all those like /wiki/Page?from=mail. Not here.
$wgHooks['BeforePageDisplay'][] = static function ( OutputPage $out ) {
	$updater = MediaWiki\MediaWikiServices::getInstance()->getHtmlCacheUpdater();
	if ( !$out->getRequest()->matchURLForCDN( $updater->getUrls( $out->getTitle() ) ) ) {
		$out->lowerCdnMaxage( 0 );
	}
};
